// Replays recorded drafts through the runner's own depth policy, at given costs. See depth_replay.py.
#include "ospec-depth.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace ospec;

struct draft {
    int taken;            // of all its tokens, had all been verified
    std::vector<float> q; // the drafter's probability of each
};

struct costs {
    double step;                // ms of one draft step
    std::vector<double> verify; // ms of a batch of 1, 2, ... tokens
};

struct sums {
    double tokens = 0, ms = 0;
    double rate() const { return 1000 * tokens / ms; }
    void add(const sums & more) { tokens += more.tokens; ms += more.ms; }
};

static sums replay(depth_policy & policy, adaptive_mode mode, int n_max, const std::vector<draft> & drafts, const costs & c) {
    sums s;
    for (const draft & d : drafts) {
        int steps = 0;
        const int limit = policy.begin(mode, n_max);
        while (steps < limit && !policy.stop(d.q[steps++])) {}
        const int n = steps > 0 ? policy.keep(steps) : 0, taken = std::min(n, d.taken);
        if (n > 0) {
            policy.learn(n, taken);
        }
        // A fully accepted draft leaves its last token for the drafter to read.
        const double ms = c.verify[n] + c.step * (steps + (n > 0 && n == taken));
        policy.measure(steps, n, taken + 1, c.step * steps, ms);
        s.add({ taken + 1.0, ms });
    }
    return s;
}

// Input: "STEP VERIFY1 VERIFY2 ..." in ms, then one draft a line: "KIND TAKEN Q1 Q2 ...".
// Output: "CONFIGURATION KIND TOKENS MS" lines.
int main() {
    std::string line, kind;
    std::getline(std::cin, line);
    std::istringstream first(line);
    costs c{};
    first >> c.step;
    for (double ms; first >> ms;) { c.verify.push_back(ms); }
    std::map<std::string, std::vector<draft>> kinds;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        draft d{};
        in >> kind >> d.taken;
        for (float q; in >> q;) { d.q.push_back(q); }
        kinds[kind].push_back(d);
    }
    const int deepest = (int) c.verify.size() - 1;
    const auto print = [](const std::string & name, const std::string & kind, const sums & s) {
        std::printf("%s %s %.0f %.3f\n", name.c_str(), kind.c_str(), s.tokens, s.ms);
    };
    for (const auto & [name, drafts] : kinds) {
        print("plain", name, { (double) drafts.size(), drafts.size() * c.verify[0] });
        for (int n = 1; n <= deepest; ++n) {
            depth_policy off;
            print("n" + std::to_string(n), name, replay(off, adaptive_mode::off, n, drafts, c));
        }
    }
    for (const auto & [mode, name] : { std::pair{ adaptive_mode::ema, "ema" }, { adaptive_mode::cost, "cost" } }) {
        depth_policy policy; // one slot meets all kinds in turn, once to learn and once to be judged
        for (const auto & [_, drafts] : kinds) { replay(policy, mode, deepest, drafts, c); }
        for (const auto & [kind, drafts] : kinds) { print(name, kind, replay(policy, mode, deepest, drafts, c)); }
    }
}
