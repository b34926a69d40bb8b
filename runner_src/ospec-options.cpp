#include "ospec-options.h"

#include "arg.h"
#include "common.h"
#include "log.h"

#include <cstdlib>
#include <stdexcept>

namespace ospec {

process_options & options() {
    static process_options instance;
    return instance;
}

relax_scope parse_scope(const std::string & text) {
    if (text == "all")      { return relax_scope::all; }
    if (text == "thinking") { return relax_scope::thinking; }
    throw std::invalid_argument("relaxed scope must be all or thinking, not '" + text + "'");
}

adaptive_mode parse_adaptive(const std::string & text) {
    if (text == "off")  { return adaptive_mode::off; }
    if (text == "ema")  { return adaptive_mode::ema; }
    if (text == "cost") { return adaptive_mode::cost; }
    throw std::invalid_argument("adaptive depth must be off, ema or cost, not '" + text + "'");
}

void apply_preset(settings & cfg, const std::string & name) {
    if (name == "throughput") {
        cfg.top_n = 8; cfg.ratio = 0.10f; cfg.budget = 0.10f; cfg.skip_streak = 0;
    } else if (name == "lift") {
        cfg.top_n = 5; cfg.ratio = 0.25f; cfg.budget = 0.05f; cfg.skip_streak = 0;
    } else if (name == "balanced") {
        cfg.top_n = 3; cfg.ratio = 0.50f; cfg.budget = 0.03f; cfg.skip_streak = 4; cfg.skip_cooldown = 4;
    } else if (name == "quality") {
        cfg.top_n = 0; cfg.skip_streak = 2; cfg.skip_cooldown = 8;
    } else {
        throw std::invalid_argument("preset must be throughput, lift, balanced or quality, not '" + name + "'");
    }
}

namespace {

float to_float(const std::string & text, const char * what, float low, float high) {
    char * end = nullptr;
    const float value = std::strtof(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= low && value <= high)) {
        throw std::invalid_argument(std::string(what) + " must be a number from " + std::to_string(low) +
                                    " to " + std::to_string(high) + ", not '" + text + "'");
    }
    return value;
}

int to_count(int value, const char * what, int low) {
    if (value < low) {
        throw std::invalid_argument(std::string(what) + " must be at least " + std::to_string(low));
    }
    return value;
}

bool to_switch(const std::string & text, const char * what) {
    if (text == "on")  { return true; }
    if (text == "off") { return false; }
    throw std::invalid_argument(std::string(what) + " must be on or off, not '" + text + "'");
}

} // namespace

void add_options(const std::function<void(common_arg)> & add) {
    const auto option = [&](common_arg arg, const char * env) {
        add(arg.set_spec().set_examples({ LLAMA_EXAMPLE_SERVER }).set_env(env));
    };
    option(common_arg({ "--spec-draft-relaxed-top-n" }, "N",
        "LOSSY: accept a drafted token that is among the target's N best (default: 0, off)",
        [](common_params &, int value) {
            options().request.top_n = to_count(value, "--spec-draft-relaxed-top-n", 0);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_TOP_N");
    option(common_arg({ "--spec-draft-relaxed-ratio" }, "R",
        "relaxed acceptance: least probability relative to the target's best token (default: 0.25; 0: rank alone)",
        [](common_params &, const std::string & value) {
            options().request.ratio = to_float(value, "--spec-draft-relaxed-ratio", 0, 1);
            if (options().request.ratio == 0) {
                LOG_WRN("%s: ratio 0 accepts improbable tokens wherever they rank high enough\n", __func__);
            }
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_RATIO");
    option(common_arg({ "--spec-draft-relaxed-delta" }, "D",
        "relaxed acceptance: most a token's probability may lie below the best one's (default: 1, off)",
        [](common_params &, const std::string & value) {
            options().request.delta = to_float(value, "--spec-draft-relaxed-delta", 0, 1);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_DELTA");
    option(common_arg({ "--spec-draft-relaxed-scope" }, "{all,thinking}",
        "relaxed acceptance: everywhere or only inside the thinking block (default: all)",
        [](common_params &, const std::string & value) {
            options().request.scope = parse_scope(value);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_SCOPE");
    option(common_arg({ "--spec-draft-relaxed-think" }, "OPEN,CLOSE",
        "markers of the thinking block (default: those of the chat template)",
        [](common_params &, const std::string & value) {
            const size_t comma = value.find(',');
            if (comma == 0 || comma == std::string::npos || comma + 1 == value.size()) {
                throw std::invalid_argument("--spec-draft-relaxed-think must be OPEN,CLOSE");
            }
            options().think_open  = value.substr(0, comma);
            options().think_close = value.substr(comma + 1);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_THINK");
    option(common_arg({ "--spec-draft-relaxed-window" }, "W",
        "relaxed acceptance: the next W drafted tokens must match exactly (default: 0, off)",
        [](common_params &, int value) {
            options().request.window = to_count(value, "--spec-draft-relaxed-window", 0);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_WINDOW");
    option(common_arg({ "--spec-draft-relaxed-budget" }, "B",
        "relaxed acceptance: mean regret allowed over 256 tokens, nats per token; strict above (default: 0.05; 0: no limit)",
        [](common_params &, const std::string & value) {
            options().request.budget = to_float(value, "--spec-draft-relaxed-budget", 0, 100);
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_BUDGET");
    option(common_arg({ "--spec-draft-relaxed-digits" }, "{on,off}",
        "relaxed acceptance: guard that keeps digits exact (default: on)",
        [](common_params &, const std::string & value) {
            options().request.digits = to_switch(value, "--spec-draft-relaxed-digits");
        }), "LLAMA_ARG_SPEC_DRAFT_RELAXED_DIGITS");
    option(common_arg({ "--spec-draft-skip-streak" }, "S",
        "pause drafting after S rounds in a row without an accepted token (default: 0, off)",
        [](common_params &, int value) {
            options().request.skip_streak = to_count(value, "--spec-draft-skip-streak", 0);
        }), "LLAMA_ARG_SPEC_DRAFT_SKIP_STREAK");
    option(common_arg({ "--spec-draft-skip-cooldown" }, "C",
        "rounds such a pause lasts (default: 8)",
        [](common_params &, int value) {
            options().request.skip_cooldown = to_count(value, "--spec-draft-skip-cooldown", 1);
        }), "LLAMA_ARG_SPEC_DRAFT_SKIP_COOLDOWN");
    option(common_arg({ "--spec-draft-adaptive" }, "{off,ema,cost}",
        "adapt the depth of each draft: to what was accepted, or to what a token costs and is worth (default: off)",
        [](common_params &, const std::string & value) {
            options().request.adaptive = parse_adaptive(value);
        }), "LLAMA_ARG_SPEC_DRAFT_ADAPTIVE");
    option(common_arg({ "--spec-draft-preset" }, "{throughput,lift,balanced,quality}",
        "set relaxed acceptance and pauses together; options after it refine it. All but quality are LOSSY",
        [](common_params &, const std::string & value) {
            apply_preset(options().request, value);
        }), "LLAMA_ARG_SPEC_DRAFT_PRESET");
    option(common_arg({ "--spec-draft-trace" }, "FILE",
        "append one JSON line per verification round to FILE (default: off)",
        [](common_params &, const std::string & value) {
            options().trace_path = value;
        }), "LLAMA_ARG_SPEC_DRAFT_TRACE");
}

} // namespace ospec
