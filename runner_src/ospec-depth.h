// How deep to draft: adaptive depth of one slot, learned from its own rounds.
#pragma once

#include "ospec-types.h"

#include <array>
#include <cstdint>
#include <vector>

namespace ospec {

// `ema`: the depth follows the number of accepted tokens; a fully accepted draft is censored, so it
// counts as one more (ALGORITHMS 3.2).
// `cost`: a round is worth the tokens it is expected to give minus its milliseconds times the rate
// (tokens per millisecond) reached so far. Drafting goes on while some longer draft would be worth
// more, and afterwards only the most valuable prefix is verified, none at all if plain decoding is
// worth more. The chance that a drafted token is accepted comes from the drafter's own confidence,
// corrected online; the cost of verifying n tokens is measured for each n, since it is no line: on
// most hardware the second token costs far more than the third.
class depth_policy {
  public:
    static constexpr int max_depth   = 16;
    static constexpr int probe_every = 128;   // rounds without a draft before one is tried anyway
    static constexpr int patience_max = 2048; // at most so many, after tries that failed

    // Starts a round that may draft up to `n_max` tokens; returns the depth allowed, 0: do not draft.
    // `fresh`: the first round of a request. What drafting gave for other text says little about this
    // one, and the drafter has read its prompt anyway, so a few rounds try it.
    int begin(adaptive_mode mode, int n_max, bool fresh = false);

    // After a token was drafted with the drafter's probability `q`; true: draft no more.
    bool stop(float q);

    // How many of the `n_drafted` tokens are worth verifying.
    int keep(int n_drafted);

    // `n_verified` tokens of the draft were verified and `n_accepted` of them taken.
    void learn(int n_verified, int n_accepted);

    // The round took `total_ms`, of which `draft_ms` went into `n_drafted` draft steps; it verified
    // `n_verified` drafted tokens and gave `n_tokens` tokens.
    void measure(int n_drafted, int n_verified, int n_tokens, double draft_ms, double total_ms);

    bool   active() const { return mode != adaptive_mode::off; }
    double chance(int position, float q) const;
    double verify_ms(int n) const;  // of a batch of `n` tokens, n >= 1
    const std::vector<float> & confidences() const { return confidence; }

  private:
    bool   calibrating() const;
    double rate() const;            // tokens per millisecond to beat
    // Value in tokens of verifying the best prefix of `n` drafted tokens; `best` becomes its length.
    double value_of(int n, int & best) const;

    adaptive_mode mode = adaptive_mode::off;
    int n_max = 0;
    std::vector<float> confidence;  // q of each token of this round

    double depth_ema = 2;
    double slope = 1, offset = 0;   // chance = sigmoid(slope * logit(q) + offset + bias[position])
    std::array<double, max_depth> bias{};
    std::array<double, max_depth> accepted_ema; // of a token all of whose predecessors were accepted

    std::array<double, max_depth + 2> ms{};     // of verification, by the tokens in the batch
    std::array<int, max_depth + 2> seen{};
    double step_ms = 0, tokens_ema = 0, ms_ema = 0;
    double gain_ema = 0;            // tokens a draft was worth more than its cost, of this request
    int    n_tries = 0;             // drafts it comes from
    int    n_rounds = 0;            // measured in mode `cost`
    int    n_idle = 0, patience = probe_every, n_dropped = 0;
    int    n_busy = 0, plain_after = probe_every / 8; // rounds with drafts until one without is measured

  public:
    depth_policy() { accepted_ema.fill(0.6); }
};

// One per slot, kept over requests; the draft loop only knows the sequence id.
depth_policy & depth_of(int seq_id);

} // namespace ospec
