#include "select.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

namespace ospec {

float keep_curve::at(int n_prompt) const {
    if (points.empty()) {
        return 1.0f;
    }
    if (n_prompt <= points.front().first) {
        return points.front().second;
    }
    for (size_t i = 1; i < points.size(); ++i) {
        const auto & [n0, k0] = points[i - 1];
        const auto & [n1, k1] = points[i];
        if (n_prompt <= n1) {
            return k0 + (k1 - k0) * (float) (n_prompt - n0) / (float) (n1 - n0);
        }
    }
    return points.back().second;
}

keep_curve keep_curve::parse(const std::string & text) {
    const auto wrong = [&](const std::string & why) {
        return std::invalid_argument("keep '" + text + "': " + why + "; write 0.3 or 8192:.4,32768:.25");
    };
    const auto share = [&](const std::string & item) {
        char * end = nullptr;
        const float value = std::strtof(item.c_str(), &end);
        if (item.empty() || *end != '\0' || !(value > 0 && value <= 1)) {
            throw wrong("a share lies above 0 and is at most 1");
        }
        return value;
    };
    keep_curve curve;
    size_t from = 0;
    while (from <= text.size()) {
        const size_t comma = std::min(text.find(',', from), text.size());
        const std::string item = text.substr(from, comma - from);
        const size_t colon = item.find(':');
        from = comma + 1;
        if (colon == std::string::npos) {
            if (comma != text.size() || !curve.points.empty()) {
                throw wrong("a list needs a length before each share");
            }
            curve.points.emplace_back(0, share(item));
            break;
        }
        char * end = nullptr;
        const std::string length = item.substr(0, colon);
        const long n = std::strtol(length.c_str(), &end, 10);
        if (length.empty() || *end != '\0' || n < 0 || n > (1 << 30)) {
            throw wrong("'" + length + "' is no length");
        }
        if (!curve.points.empty() && n <= curve.points.back().first) {
            throw wrong("lengths must rise");
        }
        curve.points.emplace_back((int) n, share(item.substr(colon + 1)));
    }
    return curve;
}

std::vector<std::pair<int, int>> ranges(const std::vector<uint8_t> & kept) {
    std::vector<std::pair<int, int>> runs;
    for (int i = 0; i < (int) kept.size(); ++i) {
        if (!kept[i]) {
            continue;
        }
        if (runs.empty() || runs.back().second != i) {
            runs.emplace_back(i, i);
        }
        runs.back().second = i + 1;
    }
    return runs;
}

float coverage_of(const std::vector<float> & scores, const std::vector<uint8_t> & kept) {
    double all = 0, in = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
        all += scores[i];
        in  += kept[i] ? scores[i] : 0;
    }
    return all > 0 ? (float) (in / all) : 1.0f;
}

std::vector<std::pair<int, int>> anchor_windows(const std::vector<int32_t> & tokens, int question, const select_options & opt) {
    struct window {
        int first, last;
        double weight;
    };
    const int n = (int) tokens.size();
    std::map<int, window> found; // by chunk
    for (int g = 2; g <= opt.gram; ++g) {
        std::map<std::vector<int32_t>, std::vector<int>> places; // n-gram of the question -> where else
        for (int i = std::max(0, question); i + g <= n; ++i) {
            places[std::vector<int32_t>(tokens.begin() + i, tokens.begin() + i + g)];
        }
        for (int i = 0; i + g <= question; ++i) {
            const auto hit = places.find(std::vector<int32_t>(tokens.begin() + i, tokens.begin() + i + g));
            if (hit != places.end() && (int) hit->second.size() <= opt.rare) {
                hit->second.push_back(i);
            }
        }
        for (const auto & [gram, where] : places) {
            if ((int) where.size() > opt.rare) {
                continue;
            }
            for (const int i : where) {
                window & w = found.try_emplace(i / opt.chunk, window{ i, i, 0.0 }).first->second;
                w.first  = std::min(w.first, i);
                w.last   = std::max(w.last, i + g);
                w.weight += (double) g / (double) where.size();
            }
        }
    }
    std::vector<window> ordered;
    for (const auto & [chunk, w] : found) {
        ordered.push_back(w);
    }
    std::stable_sort(ordered.begin(), ordered.end(), [](const window & a, const window & b) { return a.weight > b.weight; });
    std::vector<std::pair<int, int>> windows;
    for (const window & w : ordered) {
        windows.emplace_back(std::max(0, w.first - opt.near / 3), std::min(n, w.last + opt.near));
    }
    return windows;
}

namespace {

struct chunked {
    int n, size, count;
    std::vector<double> mean, sum;

    chunked(const std::vector<float> & scores, int chunk)
        : n((int) scores.size()), size(chunk), count((n + chunk - 1) / chunk), mean(count), sum(count) {
        for (int i = 0; i < n; ++i) {
            sum[i / chunk] += scores[i];
        }
        for (int c = 0; c < count; ++c) {
            mean[c] = sum[c] / width(c);
        }
    }
    int width(int c) const { return std::min(size, n - c * size); }
};

void force(std::vector<uint8_t> & kept, const forced_spans & forced, const select_options & opt) {
    const int n = (int) kept.size();
    const auto fill = [&](int from, int to) {
        for (int i = std::max(0, from); i < std::min(n, to); ++i) {
            kept[i] = 1;
        }
    };
    fill(0, 1);
    for (int i = 0; i < (int) std::min(kept.size(), forced.tokens.size()); ++i) {
        kept[i] |= forced.tokens[i];
    }
    fill(0, forced.prefix);
    const int tail = tail_of(opt);
    fill(n - tail, n);
    if (forced.turn >= 0) {
        // A long last turn carries a document: its beginning and the tail then stand for it.
        const bool document = n - forced.turn > std::max(2 * tail, 1024);
        fill(forced.turn, document ? forced.turn + opt.chunk : n);
    }
}

} // namespace

selection select_tokens(const std::vector<int32_t> & tokens, const std::vector<float> & scores,
                        const forced_spans & forced, const select_options & opt) {
    const int n = (int) tokens.size();
    if (scores.size() != tokens.size() || opt.chunk < 1) {
        throw std::invalid_argument("one score per token and chunks of at least one token are needed");
    }
    selection result;
    result.kept.assign(n, 0);
    if (n == 0) {
        return result;
    }
    force(result.kept, forced, opt);
    std::vector<float> usable = scores;
    for (float & s : usable) {
        s = std::isfinite(s) && s > 0 ? s : 0;
    }
    const chunked parts(usable, opt.chunk);

    int n_kept = (int) std::count(result.kept.begin(), result.kept.end(), 1);
    int64_t budget = opt.mode == keep_mode::keep ? (int64_t) std::ceil((double) opt.keep * parts.count - 1e-4) * opt.chunk : n;
    if (opt.max_keep > 0) {
        budget = std::min<int64_t>(budget, opt.max_keep);
    }
    const double total = std::accumulate(parts.sum.begin(), parts.sum.end(), 0.0);
    double covered = total * coverage_of(usable, result.kept);
    const auto take = [&](int from, int to) {
        for (int i = std::max(0, from); i < std::min(n, to); ++i) {
            if (!result.kept[i]) {
                result.kept[i] = 1;
                covered += usable[i];
                n_kept++;
            }
        }
    };
    if (opt.anchors) {
        // Three quarters of what is left: a question about several places needs room for each of
        // them, but one made of common words must not use up the budget.
        const int64_t limit = n_kept + std::max<int64_t>(0, budget - n_kept) * 3 / 4;
        const int question = forced.question >= 0 ? forced.question : n - std::min(n, opt.query);
        for (const auto & [from, to] : anchor_windows(tokens, question, opt)) {
            if (n_kept >= limit) {
                break;
            }
            take(from, to);
        }
    }

    std::vector<int> order(parts.count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return parts.mean[a] > parts.mean[b]; });
    const auto enough = [&] {
        return n_kept >= budget || (opt.mode == keep_mode::mass && covered >= opt.mass * total);
    };
    // The strongest tenth of the budget brings its surroundings: a fact often starts in one chunk
    // and ends in the next, which scores lower.
    const int n_top = std::max<int>(1, (int) (budget / opt.chunk / 10));
    for (int rank = 0; rank < parts.count && total > 0 && !enough(); ++rank) {
        const int from = order[rank] * opt.chunk, around = rank < n_top ? opt.near : 0;
        take(from - around, from + opt.chunk + around);
        result.threshold = (float) parts.mean[order[rank]];
    }
    result.n_kept   = n_kept;
    result.coverage = coverage_of(usable, result.kept);
    return result;
}

} // namespace ospec
