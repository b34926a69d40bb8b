#include "ospec-depth.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace ospec {

namespace {

constexpr double rate_share  = 0.05; // of a new sample in the moving averages
constexpr double cost_share  = 0.10;
constexpr double learn_share = 0.05;
constexpr int    look_every  = 32;   // drafts not worth verifying until one is verified all the same
constexpr int    trial       = 4;    // drafts of a request before it may be judged
constexpr double extra_token = 0.15; // share of a step an extra verified token costs until measured

// The first rounds of a slot measure what batches of several sizes cost; cheap, and done once.
constexpr int calibration[] = { 0, 1, 2, 4, 8, 0, 1, 2, 4, 8 };
constexpr int n_calibration = sizeof(calibration) / sizeof(calibration[0]);

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double logit(double p) {
    p = std::min(std::max(p, 0.01), 0.99);
    return std::log(p / (1 - p));
}

void follow(double & value, double sample, double share) {
    value = value == 0 ? sample : value + share * (sample - value);
}

// The same for a time. What other programs take is only ever added: a much lower sample shows that the
// value was never right, a much higher one says little.
void follow_time(double & value, double sample, double share) {
    if (sample < value / 2) {
        value = sample;
    } else {
        follow(value, value == 0 ? sample : std::min(sample, 2 * value), share);
    }
}

int slot_of(int position) { return std::min(position, depth_policy::max_depth - 1); }

} // namespace

double depth_policy::chance(int position, float q) const {
    return sigmoid(slope * logit(q) + offset + bias[slot_of(position)]);
}

bool depth_policy::calibrating() const { return n_rounds < n_calibration; }

double depth_policy::verify_ms(int n) const {
    n = std::min(std::max(n, 1), max_depth + 1);
    if (seen[n] > 0) {
        return ms[n];
    }
    int below = n - 1, above = n + 1;
    while (below > 0 && seen[below] == 0) { below--; }
    while (above <= max_depth + 1 && seen[above] == 0) { above++; }
    if (below > 0 && above <= max_depth + 1) {
        return ms[below] + (ms[above] - ms[below]) * (n - below) / (above - below);
    }
    if (below > 0)             { return ms[below] * (1 + extra_token * (n - below)); }
    if (above <= max_depth + 1) { return ms[above] / (1 + extra_token * (above - n)); }
    return 1;
}

double depth_policy::rate() const {
    const double reached = ms_ema > 0 ? tokens_ema / ms_ema : 0;
    return std::max(reached, 1.0 / verify_ms(1)); // plain decoding is always to be had
}

double depth_policy::value_of(int n, int & best) const {
    const double r = rate();
    double survival = 1, tokens = 1;
    double value = 1 - r * verify_ms(1);
    best = 0;
    for (int i = 0; i < n; ++i) {
        survival *= i < (int) confidence.size() ? chance(i, confidence[i]) : accepted_ema[slot_of(i)];
        tokens += survival;
        const double longer = tokens - r * verify_ms(i + 2);
        if (longer > value) {
            value = longer;
            best = i + 1;
        }
    }
    return value;
}

int depth_policy::begin(adaptive_mode wanted, int limit, bool fresh) {
    mode = wanted;
    n_max = std::min(limit, (int) max_depth);
    if (fresh) {
        gain_ema = 0;
        n_tries = n_idle = 0;
        patience = probe_every;
    }
    confidence.clear();
    if (mode == adaptive_mode::off) {
        n_max = limit;
    } else if (mode == adaptive_mode::ema) {
        n_max = std::min(limit, std::max(1, (int) std::lround(depth_ema)));
    } else if (calibrating()) {
        n_max = std::min(n_max, calibration[n_rounds]);
    } else if (gain_ema < 0 && n_tries >= trial) {
        n_busy = 0;
        if (++n_idle < patience) {
            return 0;
        }
    } else if (++n_busy >= plain_after) {
        // What plain decoding costs is not seen in rounds that draft; had it been measured in a bad
        // moment, drafting would seem to pay for ever.
        n_busy = 0;
        plain_after = std::min(2 * plain_after, probe_every);
        return 0;
    }
    n_idle = 0;
    return n_max;
}

bool depth_policy::stop(float q) {
    confidence.push_back(q);
    if (!active()) {
        return false;
    }
    const int n = (int) confidence.size();
    if (n >= n_max || mode != adaptive_mode::cost || calibrating()) {
        return n >= n_max;
    }
    int best = 0;
    const double now = value_of(n, best);
    for (int more = 1; n + more <= n_max; ++more) {
        // A longer draft is only worth its steps if its longer prefix is what gets verified.
        if (value_of(n + more, best) - rate() * step_ms * more > now) {
            return false;
        }
    }
    return true;
}

int depth_policy::keep(int n_drafted) {
    if (mode != adaptive_mode::cost || calibrating() || n_drafted == 0) {
        return n_drafted;
    }
    int best = 0;
    const double value = value_of(n_drafted, best);
    const double plain = 1 - rate() * verify_ms(1);
    const double gain = value - plain - rate() * step_ms * n_drafted;
    gain_ema += std::max(rate_share, 1.0 / ++n_tries) * (gain - gain_ema);
    if (n_tries > trial) {
        patience = gain_ema < 0 ? std::min(2 * patience, patience_max) : probe_every;
    }
    // What is never verified is never learned about: now and then look.
    if (best == 0 && ++n_dropped >= look_every) {
        best = n_drafted;
    }
    if (best > 0) {
        n_dropped = 0;
    }
    return best;
}

void depth_policy::learn(int n_verified, int n_accepted) {
    const bool full = n_accepted >= n_verified;
    depth_ema += 0.25 * ((full ? n_accepted + 1 : n_accepted) - depth_ema);
    // Positions after the first rejection were never tested: they teach nothing.
    for (int i = 0; i < std::min(n_verified, n_accepted + 1); ++i) {
        const double hit = i < n_accepted ? 1.0 : 0.0;
        if (i < (int) confidence.size()) {
            const double x = logit(confidence[i]), error = hit - chance(i, confidence[i]);
            offset += learn_share * error;
            bias[slot_of(i)] += 0.5 * learn_share * error;
            slope = std::min(std::max(slope + 0.25 * learn_share * error * x, 0.2), 2.0);
        }
        accepted_ema[slot_of(i)] += learn_share * (hit - accepted_ema[slot_of(i)]);
    }
}

void depth_policy::measure(int n_drafted, int n_verified, int n_tokens, double draft_ms, double total_ms) {
    if (mode == adaptive_mode::cost) {
        n_rounds++; // rounds of `ema` draft one depth for long, so they do not stand in for calibration
    }
    const int n = n_verified + 1;
    if (n <= max_depth + 1) {
        const double sample = std::max(total_ms - draft_ms, 1e-3);
        if (seen[n] == 1) {
            ms[n] = std::min(ms[n], sample); // of the two of the calibration the better
        } else {
            follow_time(ms[n], sample, seen[n] < 3 ? 0.5 : cost_share);
        }
        seen[n]++;
    }
    if (n_drafted > 0) {
        follow_time(step_ms, draft_ms / n_drafted, cost_share);
    }
    follow(tokens_ema, n_tokens, rate_share);
    follow(ms_ema, total_ms, rate_share);
}

depth_policy & depth_of(int seq_id) {
    static std::deque<depth_policy> all;
    while ((int) all.size() <= seq_id) {
        all.emplace_back();
    }
    return all[seq_id];
}

} // namespace ospec
