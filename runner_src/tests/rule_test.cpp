// The acceptance rule on the synthetic rows of ALGORITHMS table 1.3, and its pure guards.
#include "check.h"

#include "ospec-rule.h"

#include <cmath>
#include <vector>

using namespace ospec;

static std::vector<float> row(std::initializer_list<double> p) {
    std::vector<float> logits;
    for (const double x : p) {
        logits.push_back((float) std::log(x) + 3.0f); // logits are known up to a constant only
    }
    return logits;
}

static int accepted(const std::vector<float> & logits, const settings & cfg) {
    int n = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        n += acceptable(judge(logits.data(), (int) logits.size(), (int) i, cfg.delta < 1.0f), cfg);
    }
    return n;
}

static settings rule(int top_n, float ratio, float delta = 1.0f) {
    settings cfg;
    cfg.top_n = top_n;
    cfg.ratio = ratio;
    cfg.delta = delta;
    return cfg;
}

int main() {
    const auto peaked = row({ .95, .02, .01, .008, .005, .002, .002, .001, .001, .001 });
    const auto two    = row({ .55, .35, .05, .02, .01, .008, .005, .003, .002, .002 });
    const auto flat   = row({ .30, .22, .15, .10, .07, .06, .04, .03, .02, .01 });
    const auto mid    = row({ .70, .12, .06, .04, .03, .02, .01, .01, .005, .005 });

    // number of acceptable tokens by rule: multiplicative ratio with a rank cap of 10
    CHECK(accepted(peaked, rule(10, .25f)) == 1);
    CHECK(accepted(two,    rule(10, .25f)) == 2);
    CHECK(accepted(flat,   rule(10, .25f)) == 4);
    CHECK(accepted(mid,    rule(10, .25f)) == 1);
    CHECK(accepted(two,    rule(10, .05f)) == 3);
    CHECK(accepted(flat,   rule(10, .5f)) == 3);
    CHECK(accepted(mid,    rule(10, .05f)) == 4);
    // rank alone (ratio 0) is unsafe where the target is certain: it takes tokens of p .005
    CHECK(accepted(peaked, rule(5, 0)) == 5);
    // TensorRT-LLM's difference takes everything once the best token is no more likely than delta
    CHECK(accepted(two,    rule(10, 0, .6f)) == 10);
    CHECK(accepted(peaked, rule(10, 0, .6f)) == 1);
    CHECK(accepted(mid,    rule(10, 0, .6f)) == 2);
    // off
    CHECK(accepted(flat, rule(0, 0)) == 0);
    CHECK(!settings().relaxed());

    // rank: ties count against the draft; regret is the distance to the best, in nats
    const std::vector<float> tied = { 2.0f, 2.0f, 1.0f };
    CHECK(judge(tied.data(), 3, 1, false).rank == 1);
    CHECK(judge(tied.data(), 3, 2, false).rank == 2);
    CHECK(std::fabs(judge(tied.data(), 3, 2, false).regret - 1.0f) < 1e-6);
    // tokens the sampler banned stand at -inf and are never acceptable
    const std::vector<float> banned = { 2.0f, -INFINITY, 1.0f };
    CHECK(!acceptable(judge(banned.data(), 3, 1, false), rule(10, .05f)));

    // entropy of the top three: even thirds have ln 3, a certain row has none
    const std::vector<float> even = { 1.0f, 1.0f, 1.0f, -20.0f };
    CHECK(std::fabs(top3_entropy(even.data(), 4) - std::log(3.0)) < 1e-5);
    const std::vector<float> sure = { 50.0f, 0.0f, 0.0f };
    CHECK(top3_entropy(sure.data(), 3) < 1e-5);

    // repetition: the 24th token of three equal 8-grams is refused, any other token is not
    std::vector<int32_t> loop;
    for (int i = 0; i < 23; ++i) {
        loop.push_back(i % 8);
    }
    CHECK(extends_repetition(loop, 7));
    CHECK(!extends_repetition(loop, 5));
    CHECK(!extends_repetition({ loop.begin() + 1, loop.end() }, 7));

    CHECK(has_digit("a1"));
    CHECK(!has_digit("one"));

    // budget: .05 nats a token over the last 256; a short answer counts as 32 tokens
    regret_budget budget;
    CHECK(budget.allows(1.5f, .05f));
    CHECK(!budget.allows(1.7f, .05f));
    CHECK(budget.allows(100.0f, 0)); // 0: no limit
    for (int i = 0; i < 10; ++i) {
        budget.add(1.28f);
    }
    CHECK(!budget.allows(0.1f, .05f));
    for (int i = 0; i < 246; ++i) {
        budget.add(0);
    }
    CHECK(!budget.allows(0.1f, .05f)); // 12.8 nats in 256 tokens: just full
    budget.add(0);                     // the oldest leaves the window
    CHECK(budget.allows(1.0f, .05f));
    return RESULT();
}
