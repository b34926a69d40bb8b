#include "ospec-metrics.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace ospec {

namespace {

constexpr size_t max_positions = 64;

struct counters {
    std::mutex mutex; // a scrape comes from another thread
    uint64_t rounds = 0, drafted = 0, relaxed = 0, skipped = 0;
    double   regret = 0;
    std::array<uint64_t, max_positions> accepted{};
    size_t   positions = 0;
};

counters & all() {
    static counters instance;
    return instance;
}

template <class Value> void line(std::string & out, const std::string & name, const char * help, Value value) {
    const std::string full = "ollama_spec_" + name;
    out += "# HELP " + full + " " + help + "\n# TYPE " + full + " counter\n" + full + " " + std::to_string(value) + "\n";
}

} // namespace

void count_round(size_t n_drafted, size_t n_accepted) {
    counters & c = all();
    const std::lock_guard<std::mutex> lock(c.mutex);
    c.rounds++;
    c.drafted += n_drafted;
    c.positions = std::max(c.positions, std::min(n_drafted, max_positions));
    for (size_t i = 0; i < std::min(n_accepted, max_positions); ++i) {
        c.accepted[i]++;
    }
}

void count_relaxed(float regret) {
    counters & c = all();
    const std::lock_guard<std::mutex> lock(c.mutex);
    c.relaxed++;
    c.regret += regret;
}

void count_skipped() {
    counters & c = all();
    const std::lock_guard<std::mutex> lock(c.mutex);
    c.skipped++;
}

std::string metrics_text() {
    counters & c = all();
    const std::lock_guard<std::mutex> lock(c.mutex);
    std::string out;
    line(out, "draft_rounds_total",      "Verification rounds.", c.rounds);
    line(out, "draft_tokens_total",      "Drafted tokens verified.", c.drafted);
    line(out, "draft_relaxed_total",     "Drafted tokens taken by relaxed acceptance.", c.relaxed);
    line(out, "draft_regret_nats_total", "Sum of log p(best) - log p(taken) over relaxed tokens.", c.regret);
    line(out, "draft_skipped_total",     "Rounds that could have drafted and did not.", c.skipped);
    const std::string name = "ollama_spec_draft_accepted_per_pos_total";
    out += "# HELP " + name + " Accepted tokens by position in the draft.\n# TYPE " + name + " counter\n";
    for (size_t i = 0; i < c.positions; ++i) {
        out += name + "{position=\"" + std::to_string(i) + "\"} " + std::to_string(c.accepted[i]) + "\n";
    }
    return out;
}

} // namespace ospec
