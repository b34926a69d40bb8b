// How deep to draft: adaptive depth of one slot, learned from its own rounds.
#pragma once

#include "ospec-types.h"

#include <array>
#include <cstdint>
#include <vector>

namespace ospec {

// `ema`: the depth follows the number of accepted tokens; a fully accepted draft is censored, so it
// counts as one more (ALGORITHMS 3.2).
// `cost`: drafting goes on while the chance that the next token survives, per millisecond it costs
// to draft and verify, beats the rate reached so far (tokens per millisecond). The chance that a
// drafted token is accepted comes from the drafter's own confidence, corrected online per position.
class depth_policy {
  public:
    static constexpr int max_depth   = 16;
    static constexpr int probe_every = 32; // rounds without a draft before one drafts anyway

    // Starts a round that may draft up to `n_max` tokens; returns the depth allowed, 0: do not draft.
    int begin(adaptive_mode mode, int n_max);

    // After a token was drafted with the drafter's probability `q`; true: draft no more.
    bool stop(float q);

    // The round drafted `n_drafted` tokens of which `n_accepted` were taken.
    void learn(int n_drafted, int n_accepted);

    // The round took `total_ms`, of which `draft_ms` went into `n_drafted` draft steps, and gave
    // `n_tokens` tokens.
    void measure(int n_drafted, int n_tokens, double draft_ms, double total_ms);

    bool   active() const { return mode != adaptive_mode::off; }
    double chance(int position, float q) const;

  private:
    double step_ms() const;   // marginal cost of one more drafted token
    double rate() const;      // tokens per millisecond to beat
    double verify_ms(int n) const;

    adaptive_mode mode = adaptive_mode::off;
    int    n_max = 0;
    double survival = 1;
    std::vector<float> confidence;             // q of each token of this round

    double depth_ema = 2;
    std::array<double, max_depth> offset{};    // logit correction per position
    std::array<double, max_depth> accepted_ema;
    int    rounds_idle = 0;

    // Exponentially weighted moments of (tokens verified, milliseconds): a line through the cost.
    double m_n = 0, m_t = 0, m_nn = 0, m_nt = 0, weight = 0;
    double draft_step_ms = 0, tokens_ema = 0, ms_ema = 0;

  public:
    depth_policy() { accepted_ema.fill(0.6); }
};

// One per slot, kept over requests; the draft loop only knows the sequence id.
depth_policy & depth_of(int seq_id);

} // namespace ospec
