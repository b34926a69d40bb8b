#include "specprefill-compare.h"

#include "specprefill-prompt.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>

namespace ospec {

namespace {

using context = std::unique_ptr<llama_context, decltype(&llama_free)>;

std::vector<double> log_probabilities(const float * logits, int n) {
    const double top = *std::max_element(logits, logits + n);
    double sum = 0;
    for (int i = 0; i < n; ++i) {
        sum += std::exp(logits[i] - top);
    }
    std::vector<double> result(n);
    for (int i = 0; i < n; ++i) {
        result[i] = logits[i] - top - std::log(sum);
    }
    return result;
}

std::vector<double> next_token(llama_context * ctx, const std::vector<llama_token> & tokens,
                               const std::vector<llama_pos> & positions, double & ms) {
    llama_memory_clear(llama_get_memory(ctx), true);
    const int64_t start = ggml_time_us();
    const int n = (int) tokens.size(), step = (int) llama_n_batch(ctx);
    for (int from = 0; from < n; from += step) {
        const int m = std::min(step, n - from);
        llama_batch batch = llama_batch_init(m, 0, 1);
        batch.n_tokens = m;
        for (int i = 0; i < m; ++i) {
            batch.token[i]     = tokens[from + i];
            batch.pos[i]       = positions[from + i];
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = from + i == n - 1;
        }
        const int status = llama_decode(ctx, batch);
        llama_batch_free(batch);
        if (status != 0) {
            throw std::runtime_error("the model refuses this prompt (" + std::to_string(status) + ")");
        }
    }
    const float * logits = llama_get_logits_ith(ctx, -1);
    ms = (ggml_time_us() - start) / 1e3;
    return log_probabilities(logits, llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx))));
}

double divergence(const std::vector<double> & p, const std::vector<double> & q) {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
        sum += std::exp(p[i]) * (p[i] - q[i]);
    }
    return sum;
}

size_t best(const std::vector<double> & p) {
    return std::max_element(p.begin(), p.end()) - p.begin();
}

context context_for(llama_model * model, size_t n_tokens, int n_threads) {
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t) n_tokens + 8;
    cp.n_batch = cp.n_ubatch = 512;
    cp.n_threads = cp.n_threads_batch = n_threads;
    context ctx(llama_init_from_model(model, cp), llama_free);
    if (!ctx) {
        throw std::runtime_error("no memory for the context of a plain prefill");
    }
    return ctx;
}

} // namespace

double prefill_ms(llama_model * model, const std::vector<llama_token> & tokens, int n_threads) {
    const context ctx = context_for(model, tokens.size(), n_threads);
    std::vector<llama_pos> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    double ms = 0;
    next_token(ctx.get(), tokens, positions, ms);
    return ms;
}

comparison compare(llama_model * target, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & kept,
                   int n_threads) {
    const context ctx = context_for(target, tokens.size(), n_threads);
    if (!allow_position_gaps(true)) {
        throw std::runtime_error("this build takes no gaps between positions");
    }
    std::vector<llama_token> some;
    std::vector<llama_pos> all_positions, positions, compact;
    for (size_t i = 0; i < tokens.size(); ++i) {
        all_positions.push_back((llama_pos) i);
        if (kept[i]) {
            compact.push_back((llama_pos) some.size());
            some.push_back(tokens[i]);
            positions.push_back((llama_pos) i);
        }
    }
    comparison result;
    const auto dense = next_token(ctx.get(), tokens, all_positions, result.dense_ms);
    const auto original = next_token(ctx.get(), some, positions, result.original_ms);
    const auto packed = next_token(ctx.get(), some, compact, result.compact_ms);
    result.kl_original = divergence(dense, original);
    result.kl_compact = divergence(dense, packed);
    result.same_original = best(dense) == best(original);
    result.same_compact = best(dense) == best(packed);
    return result;
}

} // namespace ospec
