#include "specprefill-options.h"

#include "arg.h"
#include "common.h"

#include <cstdlib>

namespace ospec {

prefill_options & prefill_config() {
    static prefill_options instance;
    return instance;
}

namespace {

std::invalid_argument wrong(const std::string & name, const std::string & what) {
    return std::invalid_argument(name + " must be " + what);
}

int whole(int value, const char * name, int low) {
    if (value < low) {
        throw wrong(name, "at least " + std::to_string(low));
    }
    return value;
}

float number(const std::string & text, const char * name, float low, float high) {
    char * end = nullptr;
    const float value = std::strtof(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= low && value <= high)) {
        throw wrong(name, "a number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return value;
}

bool one_of(const std::string & text, const char * name, const char * yes, const char * no) {
    if (text != yes && text != no) {
        throw wrong(name, std::string(yes) + " or " + no);
    }
    return text == yes;
}

// Names an earlier, public version of this idea used. Bad values are left alone: an environment
// variable must not stop a model from loading.
void read_aliases() {
    prefill_options & opt = prefill_config();
    const auto read = [](const char * name, const std::function<void(const std::string &)> & take) {
        const char * text = std::getenv(name);
        if (text && *text) {
            try {
                take(text);
            } catch (const std::exception &) {
                return;
            }
        }
    };
    read("SP_LOOKAHEAD", [&](const std::string & t) { opt.score.lookahead = whole(std::stoi(t), "SP_LOOKAHEAD", 0); });
    read("SP_CHUNK",     [&](const std::string & t) { opt.select.chunk = whole(std::stoi(t), "SP_CHUNK", 1); });
    read("SP_MAX_KEEP",  [&](const std::string & t) { opt.select.max_keep = whole(std::stoi(t), "SP_MAX_KEEP", 0); });
    read("SP_KEEP_PCT",  [&](const std::string & t) { opt.keep = keep_curve::parse(t); });
    read("SP_CUMULATIVE_MASS", [&](const std::string & t) { opt.select.mass = number(t, "SP_CUMULATIVE_MASS", 0, 1); });
    read("SP_SELECT_MODE", [&](const std::string & t) {
        if (t == "mass" || t == "keep") {
            opt.select.mode = t == "mass" ? keep_mode::mass : keep_mode::keep;
        }
    });
}

} // namespace

void add_prefill_options(const std::function<void(common_arg)> & add) {
    read_aliases();
    const auto option = [&](common_arg arg, const char * env) {
        add(arg.set_spec().set_examples({ LLAMA_EXAMPLE_SERVER }).set_env(env));
    };
    option(common_arg({ "--specprefill" }, { "--no-specprefill" },
        "LOSSY: prefill only the part of a long prompt that a small model attends to (default: off)",
        [](common_params &, bool value) { prefill_config().on = value; }), "LLAMA_ARG_SPECPREFILL");
    option(common_arg({ "--specprefill-model" }, "FILE",
        "small model of the same vocabulary that scores prompts (default: the draft model, if it is a whole one)",
        [](common_params &, const std::string & value) { prefill_config().model = value; }), "LLAMA_ARG_SPECPREFILL_MODEL");
    option(common_arg({ "--specprefill-min-tokens" }, "N",
        "new prompt tokens from which on to prefill sparsely (default: 8192)",
        [](common_params &, int value) { prefill_config().min_tokens = whole(value, "--specprefill-min-tokens", 1); }),
        "LLAMA_ARG_SPECPREFILL_MIN_TOKENS");
    option(common_arg({ "--specprefill-keep" }, "CURVE",
        "share of the prompt kept, by length (default: 8192:.4,32768:.25,131072:.15)",
        [](common_params &, const std::string & value) { prefill_config().keep = keep_curve::parse(value); }),
        "LLAMA_ARG_SPECPREFILL_KEEP");
    option(common_arg({ "--specprefill-mode" }, "{keep,mass}",
        "choose by share of tokens or by share of attention (default: keep)",
        [](common_params &, const std::string & value) {
            prefill_config().select.mode = one_of(value, "--specprefill-mode", "mass", "keep") ? keep_mode::mass : keep_mode::keep;
        }), "LLAMA_ARG_SPECPREFILL_MODE");
    option(common_arg({ "--specprefill-mass" }, "M",
        "share of the attention kept in mode mass (default: 0.85)",
        [](common_params &, const std::string & value) {
            prefill_config().select.mass = number(value, "--specprefill-mass", 0, 1);
        }), "LLAMA_ARG_SPECPREFILL_MASS");
    option(common_arg({ "--specprefill-max-keep" }, "N",
        "most tokens kept besides the forced ones (default: 0, no limit)",
        [](common_params &, int value) { prefill_config().select.max_keep = whole(value, "--specprefill-max-keep", 0); }),
        "LLAMA_ARG_SPECPREFILL_MAX_KEEP");
    option(common_arg({ "--specprefill-chunk" }, "N", "tokens kept or dropped together (default: 32)",
        [](common_params &, int value) { prefill_config().select.chunk = whole(value, "--specprefill-chunk", 1); }),
        "LLAMA_ARG_SPECPREFILL_CHUNK");
    option(common_arg({ "--specprefill-lookahead" }, "N", "tokens generated to score with (default: 8)",
        [](common_params &, int value) { prefill_config().score.lookahead = whole(value, "--specprefill-lookahead", 0); }),
        "LLAMA_ARG_SPECPREFILL_LOOKAHEAD");
    option(common_arg({ "--specprefill-pool" }, "N", "width of the average over neighbouring scores, odd (default: 13)",
        [](common_params &, int value) {
            if (value < 1 || value % 2 == 0) {
                throw wrong("--specprefill-pool", "an odd number");
            }
            prefill_config().score.pool = value;
        }), "LLAMA_ARG_SPECPREFILL_POOL");
    option(common_arg({ "--specprefill-tail" }, "N", "last tokens always kept (default: 0, meaning 512 or the target's attention window, whichever is more)",
        [](common_params &, int value) { prefill_config().select.tail = whole(value, "--specprefill-tail", 0); }),
        "LLAMA_ARG_SPECPREFILL_TAIL");
    option(common_arg({ "--specprefill-anchors" }, "{on,off}", "keep what the question quotes (default: on)",
        [](common_params &, const std::string & value) {
            prefill_config().select.anchors = one_of(value, "--specprefill-anchors", "on", "off");
        }), "LLAMA_ARG_SPECPREFILL_ANCHORS");
    option(common_arg({ "--specprefill-pos" }, "{auto,orig,compact}",
        "positions of the kept tokens: their own, or without gaps (default: auto, without gaps where the target has windowed layers)",
        [](common_params &, const std::string & value) {
            if (value != "auto" && value != "orig" && value != "compact") {
                throw wrong("--specprefill-pos", "auto, orig or compact");
            }
            prefill_config().compact.reset();
            if (value != "auto") {
                prefill_config().compact = value == "compact";
            }
        }), "LLAMA_ARG_SPECPREFILL_POS");
    option(common_arg({ "--specprefill-reuse" }, "{on,off}",
        "go on with the kept tokens in later turns while they still fit the question (default: on)",
        [](common_params &, const std::string & value) {
            prefill_config().reuse = one_of(value, "--specprefill-reuse", "on", "off");
        }), "LLAMA_ARG_SPECPREFILL_REUSE");
    option(common_arg({ "--specprefill-min-gain" }, "G",
        "predicted gain from which on to prefill sparsely, by rates measured here (default: 1.3; 0: always)",
        [](common_params &, const std::string & value) {
            prefill_config().min_gain = number(value, "--specprefill-min-gain", 0, 1000);
        }), "LLAMA_ARG_SPECPREFILL_MIN_GAIN");
    option(common_arg({ "--specprefill-ngl" }, "N", "layers of the speculator on the GPU (default: all)",
        [](common_params &, int value) { prefill_config().gpu_layers = whole(value, "--specprefill-ngl", 0); }),
        "LLAMA_ARG_SPECPREFILL_NGL");
    option(common_arg({ "--specprefill-ubatch" }, "N",
        "tokens the speculator reads at once when nobody else is served; a quarter of it otherwise (default: 512)",
        [](common_params &, int value) { prefill_config().score.n_ubatch = whole(value, "--specprefill-ubatch", 1); }),
        "LLAMA_ARG_SPECPREFILL_UBATCH");
}

} // namespace ospec
