#include "ospec-depth.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace ospec {

namespace {

constexpr double rate_ema  = 0.1;  // rounds
constexpr double cost_ema  = 0.05;
constexpr double learn_ema = 0.05;
constexpr double slope_prior = 0.15; // an extra verified token costs this share of a step until measured

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double logit(double p) {
    p = std::min(std::max(p, 0.01), 0.99);
    return std::log(p / (1 - p));
}

void follow(double & value, double sample, double share) {
    value = value == 0 ? sample : value + share * (sample - value);
}

int slot_of(int position) { return std::min(position, depth_policy::max_depth - 1); }

} // namespace

double depth_policy::chance(int position, float q) const {
    return sigmoid(offset[slot_of(position)] + logit(q));
}

double depth_policy::verify_ms(int n) const {
    const double spread = m_nn - m_n * m_n;
    const double prior  = slope_prior * m_t / std::max(m_n, 1.0);
    const double slope  = spread > 0.05 ? std::max(0.0, (m_nt - m_n * m_t) / spread) : prior;
    return std::max(m_t + slope * (n - m_n), 1e-6);
}

double depth_policy::step_ms() const {
    return draft_step_ms + verify_ms(3) - verify_ms(2);
}

double depth_policy::rate() const {
    const double reached = ms_ema > 0 ? tokens_ema / ms_ema : 0;
    return std::max(reached, 1.0 / verify_ms(1)); // plain decoding is always to be had
}

int depth_policy::begin(adaptive_mode wanted, int limit) {
    mode = wanted;
    n_max = limit;
    survival = 1;
    confidence.clear();
    if (mode == adaptive_mode::ema) {
        n_max = std::min(limit, std::max(1, (int) std::lround(depth_ema)));
    } else if (mode == adaptive_mode::cost && weight > 4 && draft_step_ms > 0) {
        // Is the first token worth its draft? The whole draft pays at most the best prefix of it.
        double tokens = 1, ms = verify_ms(1), best = tokens / ms, s = 1;
        for (int i = 0; i < std::min(limit, max_depth); ++i) {
            s *= accepted_ema[i];
            tokens += s;
            ms += step_ms();
            best = std::max(best, tokens / ms);
        }
        if (best <= 1.0 / verify_ms(1) && ++rounds_idle < probe_every) {
            return 0;
        }
        rounds_idle = 0;
    }
    return n_max;
}

bool depth_policy::stop(float q) {
    if (!active()) {
        return false;
    }
    const int position = (int) confidence.size();
    confidence.push_back(q);
    survival *= chance(position, q);
    if (position + 1 >= n_max) {
        return true;
    }
    if (mode != adaptive_mode::cost || draft_step_ms == 0) {
        return false;
    }
    return survival * accepted_ema[slot_of(position + 1)] < rate() * step_ms();
}

void depth_policy::learn(int n_drafted, int n_accepted) {
    const bool full = n_accepted >= n_drafted;
    depth_ema += 0.25 * ((full ? n_accepted + 1 : n_accepted) - depth_ema);
    // Positions after the first rejection were never tested: they teach nothing.
    for (int i = 0; i < std::min(n_drafted, n_accepted + 1); ++i) {
        const double hit = i < n_accepted ? 1.0 : 0.0;
        if (i < (int) confidence.size()) {
            offset[slot_of(i)] += learn_ema * (hit - chance(i, confidence[i]));
        }
        accepted_ema[slot_of(i)] += learn_ema * (hit - accepted_ema[slot_of(i)]);
    }
}

void depth_policy::measure(int n_drafted, int n_tokens, double draft_ms, double total_ms) {
    const double verify = std::max(total_ms - draft_ms, 0.0);
    if (n_drafted > 0) {
        follow(draft_step_ms, draft_ms / n_drafted, cost_ema);
    }
    const double n = n_drafted + 1;
    weight += 1;
    const double share = std::max(cost_ema, 1.0 / weight);
    m_n  += share * (n - m_n);
    m_t  += share * (verify - m_t);
    m_nn += share * (n * n - m_nn);
    m_nt += share * (n * verify - m_nt);
    follow(tokens_ema, n_tokens, rate_ema);
    follow(ms_ema, total_ms, rate_ema);
}

depth_policy & depth_of(int seq_id) {
    static std::deque<depth_policy> all;
    while ((int) all.size() <= seq_id) {
        all.emplace_back();
    }
    return all[seq_id];
}

} // namespace ospec
