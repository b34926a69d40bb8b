// When to draft and how deep: skip-streak, adaptive depth, thinking scope.
#include "check.h"

#include "ospec-depth.h"
#include "ospec-skip.h"
#include "ospec-thinking.h"

using namespace ospec;

// Rounds that drafted among `rounds`, when the drafter is always wrong.
static int drafts(int streak, int cooldown, int rounds) {
    skip_policy policy;
    int n = 0;
    for (int i = 0; i < rounds; ++i) {
        if (!policy.skip()) {
            n++;
            policy.round(0, streak, cooldown);
        }
    }
    return n;
}

// Mean number of tokens verified in rounds 100..400 by a drafter whose token is right with a chance of
// `good` in 10. A step costs `draft_ms`, the second token of a batch `second_ms`, each further one 0.5.
// The first rounds without a draft meet a busy machine and take `busy` times as long.
static double depth(adaptive_mode mode, int good, float q, double draft_ms, double second_ms = 0.5, double busy = 1) {
    depth_policy policy;
    unsigned seed = 1;
    double sum = 0;
    for (int round = 0; round < 400; ++round) {
        int steps = 0;
        const int limit = policy.begin(mode, 8);
        while (steps < limit) {
            steps++;
            if (policy.stop(q)) {
                break;
            }
        }
        const int n = policy.keep(steps);
        int taken = 0;
        while (taken < n) {
            seed = seed * 1103515245u + 12345u;
            if ((int) ((seed >> 16) % 10) >= good) {
                break;
            }
            taken++;
        }
        if (n > 0) {
            policy.learn(n, taken);
        }
        const double verify_ms = 10.0 + (n > 0 ? second_ms + 0.5 * (n - 1) : 0);
        const double slower = round < 10 && n == 0 ? busy : 1;
        policy.measure(steps, n, taken + 1, steps * draft_ms, verify_ms * slower + steps * draft_ms);
        sum += round >= 100 ? n : 0;
    }
    return sum / 300;
}

int main() {
    CHECK(drafts(0, 8, 100) == 100);  // off
    CHECK(drafts(4, 4, 80) == 40);    // four wrong rounds, four without
    CHECK(drafts(1, 1, 100) == 50);   // the shortest: every second round, never none at all
    CHECK(drafts(1, 8, 90) == 10);
    skip_policy hit;
    hit.round(0, 2, 8);
    hit.round(1, 2, 8);               // an accepted token ends the streak
    hit.round(0, 2, 8);
    CHECK(!hit.skip());

    // ema: good drafts go deep, bad ones stay at one token
    CHECK(depth(adaptive_mode::off, 5, .5f, 1) == 8);
    CHECK(depth(adaptive_mode::ema, 10, .9f, 1) > 7);
    CHECK(depth(adaptive_mode::ema, 2, .9f, 1) < 1.5);
    // cost: the same drafter is worth more steps when they are cheap than when they are dear ...
    const double cheap = depth(adaptive_mode::cost, 8, .8f, 0.2), dear = depth(adaptive_mode::cost, 8, .8f, 4);
    CHECK(cheap > 5);
    CHECK(dear < cheap - 2);
    // ... and none where it can never pay, but for the odd probe
    CHECK(depth(adaptive_mode::cost, 1, .5f, 8) < 0.3);
    // a dear second token is paid for by a long draft or not at all
    CHECK(depth(adaptive_mode::cost, 9, .9f, 0.2, 8) > 6);
    CHECK(depth(adaptive_mode::cost, 4, .4f, 0.2, 8) < 0.5);
    // all depths are measured first, also after a request that only adapted by `ema`
    depth_policy measured;
    for (int i = 0; i < 30; ++i) {
        const int depth = measured.begin(adaptive_mode::ema, 8);
        measured.measure(depth, depth, 1, depth, 1 + depth);
    }
    for (const int depth : { 0, 1, 2, 4, 8 }) {
        CHECK(measured.begin(adaptive_mode::cost, 8) == depth);
        measured.measure(depth, depth, 1, depth, 1 + depth);
    }
    // a bad moment while plain decoding was measured is not believed for ever
    CHECK(depth(adaptive_mode::cost, 8, .8f, 12, 0.5, 5) < 0.3);
    CHECK(depth(adaptive_mode::cost, 8, .8f, 0.2, 0.5, 5) > 5);
    // its own confidence is believed only as far as it proves right
    depth_policy boastful;
    for (int i = 0; i < 300; ++i) {
        boastful.begin(adaptive_mode::cost, 1);
        boastful.stop(.99f);
        boastful.learn(1, i % 10 == 0);
    }
    CHECK(boastful.chance(0, .99f) < .3);

    think_tracker think(markers_of("... <think> ... </think> ..."));
    CHECK(!think.inside());
    think.feed("Well, <th");
    CHECK(!think.inside());
    think.feed("ink>");               // split over two tokens
    CHECK(think.inside());
    think.feed("hm, a long thought about nothing in particular");
    CHECK(think.inside());
    think.feed("</think> So");
    CHECK(!think.inside());
    CHECK(markers_of("x [THINK] y [/THINK]").open == "[THINK]");
    CHECK(markers_of("{{ '<|channel>thought' }} <channel|>").close == "<channel|>");
    CHECK(markers_of("nothing").open == "<think>");
    return RESULT();
}
