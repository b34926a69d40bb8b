// What a request asks of sparse prefill and what came of it. Plain data, for the server's headers.
#pragma once

#include <cstdint>
#include <string>

namespace ospec {

struct prefill_request {
    enum class wish { standard, no, yes };
    wish  want = wish::standard;
    float keep = 0;              // share kept; 0: the curve of the process
    bool  structured = false;    // tools, grammar or a tool's answer: every token may matter
};

// Reported as `timings.specprefill`.
struct prefill_figures {
    int   task = -1;             // -1: sparse prefill is not set up, nothing is reported
    std::string status;          // active, reused, kept_all, disabled, skipped_...
    std::string reason;          // of skipped_error
    std::string pos;             // original or compact positions; empty: dense
    int    n_prompt = 0;
    int    n_kept   = 0;         // prompt tokens in the target's cache
    int    n_sparse = 0;         // prompt tokens the target left out of this very prefill
    int    n_hidden = 0;         // left out in an earlier turn, in a list that does not show them
    float  keep     = 0;         // share asked for
    float  coverage = 0;         // share of the attention that was kept
    double score_ms = 0;
};

// Tells the process what a prefill cost, once a task.
void prefill_observe(const prefill_figures & figures, double n_tokens, double ms);

// `prompt_n` and `prompt_ms` count the whole wait for the whole prompt, so that clients which know
// nothing of sparse prefill show the prompt they sent and the time they waited.
template <class Json> void write_prefill(Json & timings, const prefill_figures & figures) {
    if (figures.task < 0) {
        return;
    }
    const double n = timings.at("prompt_n").template get<double>(), ms = timings.at("prompt_ms").template get<double>();
    prefill_observe(figures, n, ms);
    Json report = Json::object();
    report["status"]   = figures.status;
    report["n_prompt"] = figures.n_prompt;
    report["n_kept"]   = figures.n_kept;
    if (!figures.reason.empty()) {
        report["reason"] = figures.reason;
    }
    if (!figures.pos.empty()) {
        report["pos"]       = figures.pos;
        report["keep"]      = figures.keep;
        report["coverage"]  = figures.coverage;
        report["sparse_ms"] = ms;
        timings["prompt_n"] = (int64_t) n + figures.n_sparse;
        timings["cache_n"]  = timings.at("cache_n").template get<int64_t>() + figures.n_hidden;
    }
    if (figures.score_ms > 0) {
        report["score_ms"]   = figures.score_ms;
        timings["prompt_ms"] = ms + figures.score_ms;
    }
    timings["specprefill"] = report;
}

} // namespace ospec
