// Selection of prompt tokens on made-up scores. Prints the name of each check that fails.
#include "../select.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <stdexcept>

using namespace ospec;

static int failures = 0;

static void check(bool holds, const char * what) {
    if (!holds) {
        std::printf("FAILED: %s\n", what);
        failures++;
    }
}

static std::vector<int32_t> numbered(int n) {
    std::vector<int32_t> tokens(n);
    std::iota(tokens.begin(), tokens.end(), 1000);
    return tokens;
}

static bool rejects(const char * curve) {
    try {
        keep_curve::parse(curve);
    } catch (const std::invalid_argument &) {
        return true;
    }
    return false;
}

static void curve() {
    const keep_curve c = keep_curve::parse("1000:.4,3000:.2");
    check(std::fabs(c.at(500) - .4f) < 1e-6, "curve is flat before its first point");
    check(std::fabs(c.at(2000) - .3f) < 1e-6, "curve is linear between points");
    check(std::fabs(c.at(90000) - .2f) < 1e-6, "curve is flat after its last point");
    check(std::fabs(keep_curve::parse("0.3").at(7) - .3f) < 1e-6, "one number is a constant");
    for (const char * bad : { "", "0", "1.1", "x", "0.3,0.2", "10:.3,5:.2", "10:", ":.3", "10:.3,", "-1:.3" }) {
        check(rejects(bad), bad);
    }
}

static select_options plain(float keep) {
    select_options opt;
    opt.keep = keep;
    opt.tail = 64;
    opt.anchors = false;
    opt.near = 0;
    return opt;
}

static void budget() {
    const int n = 3200; // 100 chunks
    std::vector<float> scores(n, 0.001f);
    for (int i = 1600; i < 1632; ++i) {
        scores[i] = 1;
    }
    const selection s = select_tokens(numbered(n), scores, {}, plain(.1f));
    check(s.kept[0] == 1, "the first token stays");
    check(s.n_kept >= 320 && s.n_kept < 320 + 32, "budget is met to within a chunk");
    check(s.kept[1600] && s.kept[1631], "the best chunk stays");
    for (int i = n - 64; i < n; ++i) {
        check(s.kept[i] == 1, "the whole tail stays");
    }
    int sum = 0;
    for (const auto & [from, to] : ranges(s.kept)) {
        sum += to - from;
    }
    check(sum == s.n_kept, "ranges and count agree");
    check(select_tokens(numbered(n), scores, {}, plain(1)).all(), "keep 1 keeps all");
}

static int kept_end(const selection & s) {
    int n = 0;
    while (n < (int) s.kept.size() && s.kept[s.kept.size() - 1 - n]) { n++; }
    return n;
}

static void tail() {
    const int n = 3200;
    select_options opt = plain(.01f);
    const std::vector<std::array<int, 3>> cases = { { 0, 0, 512 }, { 0, 128, 512 }, { 0, 1024, 1024 }, { 64, 1024, 64 } };
    for (const auto & [wanted, window, expected] : cases) {
        opt.tail = wanted;
        opt.window = window;
        check(kept_end(select_tokens(numbered(n), std::vector<float>(n, 0.0f), {}, opt)) == expected,
              "the end that stays is the wish, or 512, or the window");
    }
}

// The seed's cap kept every second token or cut the end off; ours only takes fewer chunks.
static void cap() {
    const int n = 3200;
    std::vector<float> scores(n);
    for (int i = 0; i < n; ++i) {
        scores[i] = (float) ((i / 32) % 50 + 1);
    }
    select_options loose = plain(.9f), tight = plain(.9f);
    tight.max_keep = 640;
    const selection a = select_tokens(numbered(n), scores, {}, loose), b = select_tokens(numbered(n), scores, {}, tight);
    check(b.n_kept <= 640 + 32, "the cap holds");
    check(b.threshold > a.threshold, "the cap raises the threshold");
    for (int i = 0; i < n; ++i) {
        check(!b.kept[i] || a.kept[i], "what the cap keeps is kept without it");
        check(i < n - 64 || b.kept[i], "the cap leaves the tail");
    }
    for (int c = 1; c + 3 < n / 32; ++c) {
        for (int i = c * 32 + 1; i < (c + 1) * 32; ++i) {
            check(b.kept[i] == b.kept[c * 32], "the cap takes whole chunks");
        }
    }
    tight.max_keep = 10; // below what is forced
    check(select_tokens(numbered(n), scores, {}, tight).n_kept == 65, "forced tokens are never cut");
}

static void mass() {
    const int n = 3200;
    std::vector<float> scores(n, 1e-6f);
    for (int i = 320; i < 640; ++i) {
        scores[i] = 1; // ten chunks hold nearly everything
    }
    select_options opt = plain(.01f);
    opt.mode = keep_mode::mass;
    opt.mass = .85f;
    const selection s = select_tokens(numbered(n), scores, {}, opt);
    check(s.coverage >= .85f && s.coverage < .95f, "mode mass stops once the mass is reached");
    check(s.n_kept == 9 * 32 + 65, "and takes no chunk more");
}

static void forced() {
    const int n = 6400;
    const std::vector<float> scores(n, 0.0f);
    forced_spans f;
    f.tokens.assign(n, 0);
    f.tokens[777] = 1;
    f.prefix = 100;
    f.turn = n - 900;
    selection s = select_tokens(numbered(n), scores, f, plain(.1f));
    check(s.kept[777] && s.kept[99] && s.kept[n - 900] && !s.kept[n - 901], "control token, head and short last turn stay");
    f.turn = 200;
    s = select_tokens(numbered(n), scores, f, plain(.1f));
    check(s.kept[200] && s.kept[231] && !s.kept[2000], "of a long last turn the beginning stays");
    check(s.coverage == 1.0f, "no attention at all counts as covered");
}

static void anchors() {
    const int n = 6400;
    std::vector<int32_t> tokens = numbered(n);
    for (int k = 0; k < 4; ++k) {
        tokens[n - 20 + k] = tokens[3000 + k]; // the question quotes a place
    }
    for (int i = 0; i < 200; ++i) {
        tokens[1000 + 9 * i] = 7;              // and a common run of words
        tokens[1001 + 9 * i] = 8;
    }
    tokens[n - 10] = 7;
    tokens[n - 9] = 8;
    select_options opt = plain(.1f);
    opt.anchors = true;
    opt.near = 24;
    forced_spans f;
    f.question = n - 30;
    const selection s = select_tokens(tokens, std::vector<float>(n, 0.0f), f, opt);
    for (int i = 3000 - 8; i < 3004 + 24; ++i) {
        check(s.kept[i] == 1, "a quoted place stays with its surroundings");
    }
    check(!s.kept[1900], "a common run is no anchor");
    check(s.n_kept < 200, "nothing else is taken when nothing scores");
}

static void many_places() {
    const int n = 6400;
    std::vector<int32_t> tokens = numbered(n);
    for (int place = 0; place < 7; ++place) {
        for (int k = 0; k < 4; ++k) {
            tokens[n - 60 + 8 * place + k] = tokens[500 + 700 * place + k];
        }
    }
    select_options opt = plain(.05f);
    opt.anchors = true;
    opt.near = 16;
    forced_spans f;
    f.question = n - 60;
    const selection s = select_tokens(tokens, std::vector<float>(n, 0.0f), f, opt);
    for (int place = 0; place < 7; ++place) {
        for (int i = 500 + 700 * place; i < 504 + 700 * place + 16; ++i) {
            check(s.kept[i] == 1, "a question about seven places has room for all of them");
        }
    }
}

static void odd_scores() {
    const int n = 640;
    std::vector<float> scores(n, 0.1f);
    scores[100] = std::nanf("");
    scores[200] = INFINITY;
    scores[300] = -5;
    const selection s = select_tokens(numbered(n), scores, {}, plain(.3f));
    check(s.coverage > 0 && s.coverage <= 1, "scores that are no numbers do no harm");
    check(select_tokens({}, {}, {}, plain(.3f)).n_kept == 0, "an empty prompt is empty");
    bool thrown = false;
    try {
        select_tokens(numbered(3), { 1 }, {}, plain(.3f));
    } catch (const std::invalid_argument &) {
        thrown = true;
    }
    check(thrown, "scores of another length are refused");
}

int main() {
    curve();
    budget();
    tail();
    cap();
    mass();
    forced();
    anchors();
    many_places();
    odd_scores();
    std::printf("%d failures\n", failures);
    return failures != 0;
}
