// One JSON line per verification round. Costs nothing when off: nobody builds an event.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace ospec {

// Where one token stands in the target's raw logits. -1: the rows were not on the host.
struct trace_position {
    int32_t token    = -1;         // emitted
    int32_t sampled  = -1;         // what the target's sampler drew
    int     rank     = -1;         // of the emitted token
    float   regret   = 0;          // log p(best) - log p(emitted), nats
    float   entropy3 = 0;          // nats, of the target's three best tokens
    int     draft_rank   = -1;     // the same of the drafted token, which may have been refused
    float   draft_regret = 0;
    const char * verdict = "";     // match, relaxed, coin, bonus, replay, strict, or the guard that said no
};

struct trace_event {
    int task = 0, slot = 0;
    int64_t base = 0;              // position of the round's first token, `id_last`
    int32_t id_last = -1;          // the target's last token, which the draft continues
    const char * path = "";        // draft, n-gram, replay, skip-streak, skip-request, skip-cost
    bool replay = false;
    bool relaxed = false;          // the relaxed rule was on for this request
    std::vector<int32_t> draft;
    std::vector<float> draft_p;    // the drafter's probability of each
    std::vector<trace_position> positions;
    std::vector<trace_position> untested; // drafted tokens after the first refused one
    float h_l2 = -1;               // norm of the hidden row an MTP draft started from
    int64_t draft_us = 0;          // spent on drafting, all slots of the round together
    int64_t verify_us = 0;         // spent on verification, this trace included
};

// One line of NDJSON; `iter` numbers the rounds of the process.
std::string trace_line(const trace_event & event, uint64_t iter);

class trace_file {
  public:
    explicit trace_file(const std::string & path);
    ~trace_file();
    trace_file(const trace_file &) = delete;
    trace_file & operator=(const trace_file &) = delete;

    bool on() const { return file != nullptr; }
    void write(const trace_event & event);

  private:
    void drop(const char * why);

    std::string path;
    uint64_t    iter = 0;
    std::FILE * file = nullptr;
};

// The process's trace, opened at first use.
trace_file & trace();

} // namespace ospec
