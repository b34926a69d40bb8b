// llama-specprefill: scores prompt files with a speculator and prints what a sparse prefill would
// keep; with a target model also what that does to the next token.
#include "score.h"
#include "select.h"
#include "specprefill-compare.h"
#include "specprefill-prompt.h"

#include "ggml-backend.h"
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace ospec;

namespace {

struct arguments {
    std::string model, target;
    std::vector<std::string> files;
    score_options  score;
    select_options select;
    std::vector<keep_curve> keeps; // each prompt is scored once and reported for each of them
    int  gpu_layers = 999;
    bool json = false, with_scores = false, time_prefill = false;
};

const char * const USAGE =
    "usage: llama-specprefill -m SPECULATOR -f PROMPT [-f PROMPT ...] [options]\n"
    "  -m, --model FILE       speculator (GGUF)\n"
    "  -f, --file FILE        prompt, as the model gets it; several are scored one after another\n"
    "  --target FILE          also prefill this model densely, sparsely and compacted, and compare\n"
    "  --keep K               share kept, or a curve (default: 8192:.4,32768:.25,131072:.15); given\n"
    "                         several times, each prompt is reported for each\n"
    "  --mode keep|mass       budget by share of tokens or of attention (default: keep)\n"
    "  --mass M               share of attention in mode mass (default: 0.85)\n"
    "  --max-keep N           most tokens ranking may keep (default: 0, no limit)\n"
    "  --chunk N --tail N --pool N --lookahead N --near N   (default: 32 0 13 8 16)\n"
    "                         tail 0: 512, or the attention window where that is more\n"
    "  --no-anchors           do not keep what the question quotes\n"
    "  --time-prefill         also time a plain prefill of the speculator, before and after scoring\n"
    "  --plain                read the attention matrix instead of using flash attention\n"
    "  -t, --threads N        (default: 2)    -ub, --ubatch-size N  (default: 512)\n"
    "  -ngl N                 layers on the GPU (default: all)\n"
    "  --json                 one JSON object a prompt; --scores adds scores and byte offsets\n";

arguments parse(int argc, char ** argv) {
    arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const auto value = [&] {
            if (i + 1 >= argc) {
                throw std::invalid_argument(name + " needs a value");
            }
            return std::string(argv[++i]);
        };
        const auto number = [&](int low) {
            const std::string text = value();
            char * end = nullptr;
            const long n = std::strtol(text.c_str(), &end, 10);
            if (text.empty() || *end != '\0' || n < low || n > (1 << 30)) {
                throw std::invalid_argument(name + " needs a whole number of at least " + std::to_string(low));
            }
            return (int) n;
        };
        if      (name == "-m" || name == "--model")         { a.model = value(); }
        else if (name == "-f" || name == "--file")          { a.files.push_back(value()); }
        else if (name == "--target")                        { a.target = value(); }
        else if (name == "--keep")                          { a.keeps.push_back(keep_curve::parse(value())); }
        else if (name == "--mass")                          { a.select.mass = keep_curve::parse(value()).at(0); }
        else if (name == "--max-keep")                      { a.select.max_keep = number(0); }
        else if (name == "--chunk")                         { a.select.chunk = number(1); }
        else if (name == "--tail")                          { a.select.tail = number(0); }
        else if (name == "--near")                          { a.select.near = number(0); }
        else if (name == "--pool")                          { a.score.pool = number(1); }
        else if (name == "--lookahead")                     { a.score.lookahead = number(0); }
        else if (name == "--no-anchors")                    { a.select.anchors = false; }
        else if (name == "--time-prefill")                  { a.time_prefill = true; }
        else if (name == "--plain")                         { a.score.flash = false; }
        else if (name == "-t" || name == "--threads")       { a.score.n_threads = number(1); }
        else if (name == "-ub" || name == "--ubatch-size")  { a.score.n_ubatch = number(1); }
        else if (name == "-ngl")                            { a.gpu_layers = number(0); }
        else if (name == "--json")                          { a.json = true; }
        else if (name == "--scores")                        { a.with_scores = true; }
        else if (name == "--mode") {
            const std::string mode = value();
            if (mode != "keep" && mode != "mass") {
                throw std::invalid_argument("--mode is keep or mass");
            }
            a.select.mode = mode == "mass" ? keep_mode::mass : keep_mode::keep;
        }
        else { throw std::invalid_argument("unknown option " + name); }
    }
    if (a.model.empty() || a.files.empty()) {
        throw std::invalid_argument("a model and a prompt file are needed");
    }
    if (a.keeps.empty()) {
        a.keeps.push_back(keep_curve::parse("8192:.4,32768:.25,131072:.15"));
    }
    return a;
}

std::string read_file(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) {
        throw std::runtime_error("cannot read " + path);
    }
    return text.str();
}

std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> tokens(text.size() + 8);
    const int n = llama_tokenize(vocab, text.data(), (int) text.size(), tokens.data(), (int) tokens.size(), true, true);
    if (n <= 0) {
        throw std::runtime_error("the prompt is empty");
    }
    tokens.resize(n);
    return tokens;
}

std::string offsets_json(const llama_vocab * vocab, const std::vector<llama_token> & tokens) {
    std::string out = "[0";
    long at = 0;
    for (const llama_token token : tokens) {
        char piece[512];
        at += std::max(0, llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, true));
        out += "," + std::to_string(at);
    }
    return out + "]";
}

std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') { out += '\\'; }
        out += (unsigned char) c < 0x20 ? ' ' : c;
    }
    return out + "\"";
}

void report(const arguments & a, const std::string & file, const llama_vocab * vocab,
            const std::vector<llama_token> & tokens, const selection & chosen, const scorer & score,
            float keep, const std::vector<double> & prefills, const comparison * compared) {
    const score_result & scored = score.result();
    const auto runs = ranges(chosen.kept);
    if (!a.json) {
        std::printf("%s: %zu tokens, kept %d (%.1f %%) in %zu ranges, coverage %.3f\n", file.c_str(), tokens.size(),
                    chosen.n_kept, 100.0 * chosen.n_kept / tokens.size(), runs.size(), chosen.coverage);
        std::printf("  scored in %.0f ms (prompt %.0f, %d queries %.0f), %d layers, cache %.1f MiB\n",
                    scored.prompt_ms + scored.query_ms, scored.prompt_ms, scored.n_queries, scored.query_ms,
                    scored.n_layers, score.cache_bytes() / 1048576.0);
        for (const auto & [from, to] : runs) {
            std::printf("  [%d, %d)\n", from, to);
        }
        if (!prefills.empty()) {
            std::printf("  a plain prefill of the speculator: %.0f ms before, %.0f ms after\n", prefills[0], prefills[1]);
        }
        if (compared) {
            std::printf("  target: dense %.0f ms, sparse %.0f ms, compact %.0f ms; KL original %.4f, compact %.4f nats\n",
                        compared->dense_ms, compared->original_ms, compared->compact_ms, compared->kl_original,
                        compared->kl_compact);
        }
        return;
    }
    std::printf("{\"file\":%s,\"n_prompt\":%zu,\"n_kept\":%d,\"keep\":%g,\"coverage\":%g,\"threshold\":%g,\"prompt_ms\":%.1f,"
                "\"query_ms\":%.1f,\"score_ms\":%.1f,\"n_evaluated\":%d,\"n_queries\":%d,\"n_layers\":%d,\"cache_bytes\":%zu,\"ranges\":[",
                quoted(file).c_str(), tokens.size(), chosen.n_kept, keep, chosen.coverage, chosen.threshold,
                scored.prompt_ms, scored.query_ms, scored.prompt_ms + scored.query_ms, scored.n_evaluated,
                scored.n_queries, scored.n_layers, score.cache_bytes());
    for (size_t i = 0; i < runs.size(); ++i) {
        std::printf("%s[%d,%d]", i ? "," : "", runs[i].first, runs[i].second);
    }
    std::printf("]");
    if (!prefills.empty()) {
        std::printf(",\"prefill_ms\":[%.1f,%.1f]", prefills[0], prefills[1]);
    }
    if (compared) {
        std::printf(",\"target\":{\"dense_ms\":%.1f,\"original_ms\":%.1f,\"compact_ms\":%.1f,\"kl_original\":%g,"
                    "\"kl_compact\":%g,\"same_original\":%s,\"same_compact\":%s}",
                    compared->dense_ms, compared->original_ms, compared->compact_ms, compared->kl_original,
                    compared->kl_compact, compared->same_original ? "true" : "false",
                    compared->same_compact ? "true" : "false");
    }
    if (a.with_scores) {
        std::printf(",\"offsets\":%s,\"scores\":[", offsets_json(vocab, tokens).c_str());
        for (size_t i = 0; i < scored.scores.size(); ++i) {
            std::printf("%s%.6g", i ? "," : "", scored.scores[i]);
        }
        std::printf("]");
    }
    std::printf("}\n");
    std::fflush(stdout);
}

llama_model * load(const std::string & path, int gpu_layers) {
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = gpu_layers;
    llama_model * model = llama_model_load_from_file(path.c_str(), mp);
    if (!model) {
        throw std::runtime_error("cannot load " + path);
    }
    return model;
}

void run(const arguments & a) {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) { std::fputs(text, stderr); }
    }, nullptr);
    ggml_backend_load_all();
    const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(load(a.model, a.gpu_layers), llama_model_free);
    std::unique_ptr<llama_model, decltype(&llama_model_free)> target(nullptr, llama_model_free);
    if (!a.target.empty()) {
        target.reset(load(a.target, a.gpu_layers));
        if (!same_vocab(llama_model_get_vocab(model.get()), llama_model_get_vocab(target.get()))) {
            throw std::runtime_error("speculator and target have different vocabularies");
        }
    }
    const llama_vocab * vocab = llama_model_get_vocab(model.get());
    scorer score(model.get(), a.score);
    for (const std::string & file : a.files) {
        const std::vector<llama_token> tokens = tokenize(vocab, read_file(file));
        std::vector<double> prefills; // one on either side: a machine that grows slower hurts both alike
        const auto time_prefill = [&] {
            if (a.time_prefill) {
                prefills.push_back(prefill_ms(model.get(), tokens, a.score.n_threads));
            }
        };
        time_prefill();
        score.begin(tokens);
        while (!score.advance(a.score.n_ubatch)) {}
        time_prefill();
        for (const keep_curve & keep : a.keeps) {
            select_options opt = a.select;
            opt.window = llama_model_n_swa(target ? target.get() : model.get());
            opt.keep = keep.at((int) tokens.size());
            const selection chosen = select_tokens(tokens, score.result().scores, forced_of(vocab, tokens), opt);
            comparison compared;
            if (target) {
                compared = compare(target.get(), tokens, chosen.kept, a.score.n_threads);
            }
            report(a, file, vocab, tokens, chosen, score, opt.keep, prefills, target ? &compared : nullptr);
        }
    }
}

} // namespace

int main(int argc, char ** argv) {
    try {
        if (argc > 1 && (!std::strcmp(argv[1], "-h") || !std::strcmp(argv[1], "--help"))) {
            std::fputs(USAGE, stdout);
            return 0;
        }
        run(parse(argc, argv));
        return 0;
    } catch (const std::invalid_argument & e) {
        std::fprintf(stderr, "%s\n%s", e.what(), USAGE);
        return 2;
    } catch (const std::exception & e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
