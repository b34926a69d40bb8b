#include "prefill.h"

#include "log.h"

#include <algorithm>

namespace ospec {

namespace {

// A frozen selection still fits when it covers almost as much attention as a new one would.
constexpr float AGREEMENT = 0.9f;
constexpr double FRESH = 0.3; // weight of the newest rate

// The runner's log is read for memory figures of the target; the speculator must not add to them.
struct quiet {
    ggml_log_callback callback;
    void * data;
    quiet() {
        llama_log_get(&callback, &data);
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    }
    ~quiet() { llama_log_set(callback, data); }
};

void learn(double & rate, double value) {
    rate = rate > 0 ? (1 - FRESH) * rate + FRESH * value : value;
}

} // namespace

prefill_engine & prefill() {
    static prefill_engine instance;
    return instance;
}

void prefill_observe(const prefill_figures & figures, double n_tokens, double ms) {
    prefill().observe(figures, n_tokens, ms);
}

void prefill_engine::load(llama_model * target, llama_context * ctx, llama_model * draft, int n_threads, bool freeze) {
    unload();
    prefill_options & opt = prefill_config();
    if (!opt.wanted()) {
        return;
    }
    loaded = true;
    problem_status = nullptr;
    problem.clear();
    vocab = llama_model_get_vocab(target);
    opt.select.window = llama_model_n_swa(target);
    if (llama_model_is_recurrent(target) || llama_model_is_hybrid(target)) {
        problem_status = "skipped_recurrent";
    } else if (!opt.model.empty()) {
        const quiet silence;
        llama_model_params mp = llama_model_default_params();
        mp.n_gpu_layers = opt.gpu_layers;
        own.reset(llama_model_load_from_file(opt.model.c_str(), mp));
        speculator = own.get();
    } else {
        speculator = draft;
    }
    if (!problem_status && !speculator) {
        problem_status = "skipped_error";
        problem = opt.model.empty() ? "no speculator: give --specprefill-model" : "cannot load " + opt.model;
    } else if (!problem_status && !same_vocab(vocab, llama_model_get_vocab(speculator))) {
        problem_status = "skipped_vocab";
    }
    if (problem_status) {
        LOG_WRN("specprefill: prompts are prefilled densely (%s %s)\n", problem_status, problem.c_str());
        return;
    }
    opt.score.n_threads = n_threads;
    score = std::make_unique<scorer>(speculator, opt.score);
    {
        const quiet silence; // a refused probe is an answer, not an error
        allow_position_gaps(true);
        // A window full of gaps shows next to nothing; without gaps it shows what was kept. gemma3-270m at
        // keep 30 % (40 prompts, bench/prefill.py): KL to dense 0.008 against 0.026 nats.
        gaps = !opt.compact.value_or(opt.select.window > 0) && context_takes_gaps(ctx);
    }
    // With holes, windowed layers forget what a later turn would go on with.
    can_freeze = freeze && opt.reuse && !(gaps && opt.select.window > 0);
    LOG_INF("specprefill: ready, %s positions\n", gaps ? "original" : "compact");
}

void prefill_engine::unload() {
    allow_position_gaps(false);
    score.reset();
    own.reset();
    speculator = nullptr;
    loaded = gaps = can_freeze = false;
    owner = -1;
}

void prefill_engine::refuse(const std::string & why) {
    problem_status = "skipped_error";
    problem = why;
}

float prefill_engine::predicted_gain(int n_prompt, int n_new, float keep) const {
    const std::lock_guard<std::mutex> lock(mutex);
    if (target_ms <= 0 || speculator_ms <= 0) {
        return 1e9f; // the first long prompt is the measurement
    }
    const int kept = std::max(tail_of(prefill_config().select), (int) (keep * n_prompt));
    return (float) (n_new * target_ms / (n_new * speculator_ms + query_ms + std::min(kept, n_new) * target_ms));
}

const char * prefill_engine::refusal(const prefill_slot & slot, int n_new) const {
    const prefill_options & opt = prefill_config();
    using wish = prefill_request::wish;
    if (slot.request.want == wish::no)                  { return "skipped_request"; }
    if (slot.request.want != wish::yes && !opt.on)      { return "disabled"; }
    if (problem_status)                                 { return problem_status; }
    if (slot.request.structured)                        { return "skipped_tool_guard"; }
    if (slot.n_shared > 0)                              { return nullptr; } // a later turn
    if (n_new < opt.min_tokens)                         { return "skipped_min_tokens"; }
    const float keep = slot.request.keep > 0 ? slot.request.keep : opt.keep.at((int) slot.prompt.size());
    if (opt.min_gain > 0 && predicted_gain((int) slot.prompt.size(), n_new, keep) < opt.min_gain) {
        return "skipped_break_even";
    }
    return nullptr;
}

bool prefill_engine::step(prefill_slot & slot, int slot_id, bool alone) {
    if (owner >= 0 && owner != slot_id) {
        return false; // one at a time: its turn comes
    }
    try {
        if (slot.at == prefill_slot::phase::waiting) {
            const quiet silence;
            // A later turn only asks whether the old choice still fits: the last token tells.
            score->begin(slot.prompt, slot.n_shared > 0 ? 0 : -1);
            owner = slot_id;
            slot.at = prefill_slot::phase::scoring;
        }
        const int n_ubatch = prefill_config().score.n_ubatch;
        if (!score->advance(alone ? n_ubatch : std::max(1, n_ubatch / 4))) {
            return false;
        }
        owner = -1;
        choose(slot);
    } catch (const std::exception & e) {
        owner = -1;
        slot.kept.clear();
        slot.n_shared = 0;
        slot.figures.reason = e.what();
        slot.finish("skipped_error");
        LOG_WRN("specprefill: %s; this prompt is prefilled densely\n", e.what());
    }
    return true;
}

void prefill_engine::choose(prefill_slot & slot) {
    const prefill_options & opt = prefill_config();
    const score_result & scored = score->result();
    const int n = (int) slot.prompt.size();
    prefill_figures & f = slot.figures;
    f.score_ms += scored.prompt_ms + scored.query_ms;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (scored.n_evaluated >= 256) {
            learn(speculator_ms, scored.prompt_ms / scored.n_evaluated);
            learn(query_ms, scored.query_ms);
        }
    }
    select_options select = opt.select;
    select.keep = f.keep = slot.request.keep > 0 ? slot.request.keep : opt.keep.at(n);
    const selection fresh = select_tokens(slot.prompt, scored.scores, forced_of(vocab, slot.prompt), select);
    f.pos = gaps ? "original" : "compact";
    if (slot.n_shared > 0) {
        std::vector<uint8_t> kept = slot.frozen.kept;
        kept.resize(slot.n_shared);
        kept.resize(n, 1);
        const float covered = coverage_of(scored.scores, kept);
        if (covered >= AGREEMENT * fresh.coverage) {
            slot.kept = kept;
            slot.compact = !gaps;
            f.coverage = covered;
            slot.finish("reused");
            return;
        }
        slot.n_shared = 0;
    }
    f.coverage = fresh.coverage;
    if (fresh.all()) {
        f.pos.clear();
        slot.finish("kept_all");
        return;
    }
    slot.kept = fresh.kept;
    slot.compact = !gaps;
    slot.finish("active");
}

void prefill_engine::abandon(int slot_id) {
    if (owner == slot_id) {
        owner = -1;
        score->cancel();
    }
}

void prefill_engine::observe(const prefill_figures & figures, double n_tokens, double ms) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (figures.task == last_seen || n_tokens < 256 || ms <= 0) {
        return; // too few to tell, or a second report of the same prefill
    }
    last_seen = figures.task;
    learn(target_ms, ms / n_tokens);
}

} // namespace ospec
