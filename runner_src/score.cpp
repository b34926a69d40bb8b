#include "score.h"

#include "score-read.h"

#include <algorithm>
#include <stdexcept>

namespace ospec {

namespace {

// A look-ahead step stops at every layer, and threads start and meet anew each time. For few weights
// that costs more than it saves: SmolLM2 (94 MiB) with nine queries on 2 busy cores took 8.7 s with two
// threads and 0.2 s with one.
int query_threads(const llama_model * model, int n_threads) {
    constexpr uint64_t WEIGHTS_A_THREAD = 128ull << 20;
    return (int) std::min<uint64_t>(n_threads, 1 + llama_model_size(model) / WEIGHTS_A_THREAD);
}

} // namespace

struct scorer::state {
    llama_model * model;
    score_options opt;
    attention_reader reader;
    llama_context * ctx = nullptr;
    std::vector<llama_token> cached; // what the context's cache holds, cell i = token i
    std::vector<llama_token> prompt;
    int  lookahead = 0;
    int  n_done    = 0;     // prompt tokens in the cache
    bool running   = false;
    llama_token next = 0;   // query to run
    int  n_queries = 0;
    score_result out;

    state(llama_model * m, const score_options & o) : model(m), opt(o), reader(o) {}
    ~state() { llama_free(ctx); }

    // The cache grows in powers of two, so a server that never sees a long prompt never pays for one.
    void reserve(int n_tokens) {
        if (ctx && (int) llama_n_ctx(ctx) >= n_tokens) {
            return;
        }
        int n_ctx = 4096;
        while (n_ctx < n_tokens) {
            n_ctx *= 2;
        }
        const int n_train = llama_model_n_ctx_train(model);
        if (n_tokens > n_train) {
            throw std::runtime_error("the prompt is longer than the speculator's context of " +
                                     std::to_string(n_train) + " tokens");
        }
        const std::vector<uint8_t> kept = saved();
        llama_free(ctx);
        llama_context_params cp = llama_context_default_params();
        cp.n_ctx = n_ctx;
        cp.n_batch = cp.n_ubatch = opt.n_ubatch;
        cp.n_seq_max = 1;
        cp.n_threads = query_threads(model, opt.n_threads);
        cp.n_threads_batch = opt.n_threads;
        cp.flash_attn_type = opt.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        cp.swa_full = true; // else the cells of windowed layers would not be in token order
        cp.no_perf = true;
        cp.cb_eval = attention_reader::callback;
        cp.cb_eval_user_data = &reader;
        ctx = llama_init_from_model(model, cp);
        if (!ctx) {
            cached.clear();
            throw std::runtime_error("no memory for a speculator context of " + std::to_string(n_ctx) + " tokens");
        }
        if (kept.empty() || llama_state_seq_set_data(ctx, kept.data(), kept.size(), 0) == 0) {
            reset();
        }
    }

    // The cells of the cache, to go on with in a larger context: a chat that outgrows its context must
    // not pay for all of its history again.
    std::vector<uint8_t> saved() const {
        std::vector<uint8_t> data(cached.empty() ? 0 : llama_state_seq_get_size(ctx, 0));
        data.resize(data.empty() ? 0 : llama_state_seq_get_data(ctx, data.data(), data.size(), 0));
        return data;
    }

    void decode(const llama_token * tokens, int n, bool output) {
        llama_batch batch = llama_batch_init(n, 0, 1);
        batch.n_tokens = n;
        for (int i = 0; i < n; ++i) {
            batch.token[i]     = tokens[i];
            batch.pos[i]       = (llama_pos) cached.size() + i;
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = output && i == n - 1;
        }
        const int status = llama_decode(ctx, batch);
        llama_batch_free(batch);
        if (status != 0) {
            throw std::runtime_error("the speculator failed to decode (" + std::to_string(status) + ")");
        }
        cached.insert(cached.end(), tokens, tokens + n);
    }

    void keep_cells(size_t n) {
        if (cached.size() > n) {
            if (!llama_memory_seq_rm(llama_get_memory(ctx), 0, (llama_pos) n, -1)) {
                llama_memory_clear(llama_get_memory(ctx), true);
                n = 0;
            }
            cached.resize(n);
        }
    }

    // Nothing is known about a cache whose decode failed.
    void reset() {
        running = false;
        reader.stop();
        if (ctx) {
            llama_memory_clear(llama_get_memory(ctx), true);
        }
        cached.clear();
    }

    void run_query() {
        reader.begin_query();
        decode(&next, 1, true);
        if (!reader.end_query()) {
            throw std::runtime_error("the speculator shows no attention to read");
        }
        n_queries++;
        const float * logits = llama_get_logits_ith(ctx, -1);
        const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
        next = (llama_token) (std::max_element(logits, logits + n_vocab) - logits);
    }
};

scorer::scorer(llama_model * model, const score_options & options) : s(std::make_unique<state>(model, options)) {
    if (options.pool < 1 || options.pool % 2 == 0 || options.n_ubatch < 1) {
        throw std::runtime_error("the pool must be odd and the micro-batch at least 1");
    }
}

scorer::~scorer() = default;

void scorer::begin(std::vector<llama_token> prompt, int lookahead) {
    if (prompt.empty()) {
        throw std::runtime_error("there is nothing to score");
    }
    s->running = false;
    s->lookahead = lookahead < 0 ? s->opt.lookahead : lookahead;
    s->prompt = std::move(prompt);
    s->reserve((int) s->prompt.size() + s->lookahead + 1);
    const size_t last = s->prompt.size() - 1; // the last token is the first query: always run
    size_t shared = 0;
    while (shared < std::min(last, s->cached.size()) && s->cached[shared] == s->prompt[shared]) {
        shared++;
    }
    s->keep_cells(shared);
    s->n_done = (int) s->cached.size();
    s->n_queries = 0;
    s->out = score_result();
    s->reader.start((int) s->prompt.size());
    s->running = true;
}

bool scorer::advance(int max_tokens) {
    if (!s->running) {
        throw std::runtime_error("no prompt is being scored");
    }
    try {
        const int n_prompt = (int) s->prompt.size();
        const int64_t start = ggml_time_us();
        if (s->n_done < n_prompt - 1) {
            const int n = std::min({ std::max(1, max_tokens), s->opt.n_ubatch, n_prompt - 1 - s->n_done });
            s->decode(s->prompt.data() + s->n_done, n, false);
            llama_synchronize(s->ctx);
            s->n_done += n;
            s->out.n_evaluated += n;
            s->out.prompt_ms += (ggml_time_us() - start) / 1e3;
            return false;
        }
        if (s->n_queries == 0) {
            s->next = s->prompt.back();
        }
        s->run_query();
        const bool end = s->n_queries > s->lookahead ||
            llama_vocab_is_eog(llama_model_get_vocab(s->model), s->next);
        if (!end) {
            s->out.query_ms += (ggml_time_us() - start) / 1e3;
            return false;
        }
        s->out.n_evaluated++;
        s->out.scores    = s->reader.scores();
        s->out.n_layers  = s->reader.n_layers();
        s->out.n_queries = s->n_queries;
        s->out.query_ms += (ggml_time_us() - start) / 1e3;
        s->reader.stop();
        s->keep_cells(n_prompt);
        s->running = false;
        return true;
    } catch (...) {
        s->reset();
        throw;
    }
}

void scorer::cancel() {
    s->running = false;
    s->reader.stop();
}

const score_result & scorer::result() const {
    return s->out;
}

size_t scorer::cache_bytes() const {
    return s->ctx ? llama_state_seq_get_size(s->ctx, 0) : 0;
}

} // namespace ospec
