// The acceptance rule and its pure guards: no model, no sampler, no server.
#pragma once

#include "ospec-types.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ospec {

// Where a drafted token stands in the target's raw logits of its position.
struct standing {
    int   rank   = 0; // tokens the target prefers, ties counted against the draft
    float regret = 0; // log p(best) - log p(draft), nats; >= 0
    float gap    = 0; // p(best) - p(draft); 0 unless asked for, since it costs a pass of exp()
};

standing judge(const float * logits, int n_vocab, int32_t draft, bool want_gap);

// Whether the standing satisfies rank < top_n, p >= ratio * p(best) and p >= p(best) - delta.
bool acceptable(const standing & s, const settings & cfg);

// Entropy in nats of the target's three best tokens, renormalised (what FLy thresholds).
float top3_entropy(const float * logits, int n_vocab);

// Whether `token` would extend an n-gram of `n` tokens that then stood `times` times in a row.
bool extends_repetition(const std::vector<int32_t> & history, int32_t token, size_t n = 8, size_t times = 3);

bool has_digit(const std::string & text);

// Mean regret over the last `span` emitted tokens; short answers count as `floor` tokens, so that
// one relaxed token at the very start is possible and a burst is not.
class regret_budget {
  public:
    static constexpr size_t span = 256;
    static constexpr size_t floor = 32;

    void  add(float regret);
    bool  allows(float regret, float nats_per_token) const;
    void  clear();

  private:
    std::deque<float> window;
    double sum = 0;
};

} // namespace ospec
