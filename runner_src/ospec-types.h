// What one request asks of drafting and what came of it. Plain data: no llama.cpp type is needed,
// so the headers of the server can hold these as members at every tag.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ospec {

enum class relax_scope { all, thinking };
enum class adaptive_mode { off, ema, cost };

// Settings of drafting and acceptance; the command line sets the defaults, a request may override
// each. Everything is off by default, and then the stock code runs.
struct settings {
    int   top_n     = 0;      // relaxed acceptance: target rank a drafted token may have; 0: off
    float ratio     = 0.25f;  // ... and its probability over the best token's, at least
    float delta     = 1.0f;   // ... and at most this much below the best one's; 1: off (TensorRT-LLM)
    float budget    = 0.05f;  // mean regret allowed, nats per token over 256 tokens; 0: no limit
    int   window    = 0;      // next positions that must match exactly (FLy, arXiv 2511.22972); 0: off
    bool  digits    = true;   // never relax where either token holds a digit
    relax_scope scope = relax_scope::all;

    int   n_max         = -1; // drafted tokens per round; 0: none, -1: as the server was started
    int   skip_streak   = 0;  // rounds without an accepted token before drafting pauses; 0: off
    int   skip_cooldown = 8;  // rounds the pause lasts
    adaptive_mode adaptive = adaptive_mode::off;

    bool relaxed() const { return top_n > 0; }
};

// Sums over one answer, reported in `timings`.
struct figures {
    uint64_t n_rounds  = 0;
    uint64_t n_relaxed = 0;
    uint64_t n_skipped = 0;   // rounds that could have drafted and did not
    uint64_t n_dropped = 0;   // tokens drafted and then not worth verifying
    double   regret    = 0;   // sum over relaxed tokens of log p(best) - log p(emitted), nats
    std::vector<uint32_t> accepted_at; // how often the token at draft position i was accepted

    bool any() const { return n_rounds > 0 || n_skipped > 0; }
};

} // namespace ospec
