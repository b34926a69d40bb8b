#include "ospec-rule.h"

#include <algorithm>
#include <cmath>

namespace ospec {

standing judge(const float * logits, int n_vocab, int32_t draft, bool want_gap) {
    standing s;
    const float own = logits[draft];
    float best = own;
    for (int i = 0; i < n_vocab; ++i) {
        if (i != draft && logits[i] >= own) {
            s.rank++;
            best = std::max(best, logits[i]);
        }
    }
    s.regret = best - own;
    if (want_gap) {
        double total = 0;
        for (int i = 0; i < n_vocab; ++i) {
            total += std::exp((double) logits[i] - best);
        }
        s.gap = (float) ((1.0 - std::exp(-(double) s.regret)) / total);
    }
    return s;
}

bool acceptable(const standing & s, const settings & cfg) {
    if (s.rank >= cfg.top_n) {
        return false;
    }
    if (cfg.ratio > 0 && s.regret > -std::log(cfg.ratio)) {
        return false;
    }
    return cfg.delta >= 1.0f || s.gap <= cfg.delta;
}

float top3_entropy(const float * logits, int n_vocab) {
    float top[3] = { -INFINITY, -INFINITY, -INFINITY };
    for (int i = 0; i < n_vocab; ++i) {
        const float x = logits[i];
        if (x > top[0]) {
            top[2] = top[1]; top[1] = top[0]; top[0] = x;
        } else if (x > top[1]) {
            top[2] = top[1]; top[1] = x;
        } else if (x > top[2]) {
            top[2] = x;
        }
    }
    double total = 0, weighted = 0;
    for (const float x : top) {
        if (std::isfinite(x)) {
            const double d = (double) x - top[0], e = std::exp(d);
            total += e;
            weighted += e * d;
        }
    }
    return total > 0 ? (float) (std::log(total) - weighted / total) : 0.0f;
}

bool extends_repetition(const std::vector<int32_t> & history, int32_t token, size_t n, size_t times) {
    const size_t need = n * times;
    if (history.size() + 1 < need) {
        return false;
    }
    const auto at = [&](size_t back) { // back = 0 is the candidate itself
        return back == 0 ? token : history[history.size() - back];
    };
    for (size_t back = 0; back + n < need; ++back) {
        if (at(back) != at(back + n)) {
            return false;
        }
    }
    return true;
}

bool has_digit(const std::string & text) {
    return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
}

void regret_budget::add(float regret) {
    window.push_back(regret);
    sum += regret;
    if (window.size() > span) {
        sum -= window.front();
        window.pop_front();
    }
}

bool regret_budget::allows(float regret, float nats_per_token) const {
    if (nats_per_token <= 0) {
        return true;
    }
    const size_t tokens = std::min(std::max(window.size() + 1, floor), span);
    return sum + regret <= (double) nats_per_token * (double) tokens;
}

void regret_budget::clear() {
    window.clear();
    sum = 0;
}

} // namespace ospec
