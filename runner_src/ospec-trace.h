// One JSON line per verification round. Costs nothing when off: nobody builds an event.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace ospec {

struct trace_position {
    int32_t token    = -1;         // emitted
    int32_t sampled  = -1;         // what the target's sampler drew
    int     rank     = 0;          // of the emitted token in the raw target logits
    float   regret   = 0;          // nats
    float   entropy3 = 0;          // nats, of the target's three best tokens
    const char * verdict = "";     // match, relaxed, bonus, replay, or the guard that said no
};

struct trace_event {
    int task = 0, slot = 0;
    int64_t base = 0;              // position of the first drafted token
    bool replay = false;
    bool relaxed = false;          // the relaxed rule was on for this request
    std::vector<int32_t> draft;
    std::vector<trace_position> positions;
    int64_t t_us = 0;              // spent on verification
};

class trace_file {
  public:
    explicit trace_file(const std::string & path);
    ~trace_file();
    trace_file(const trace_file &) = delete;
    trace_file & operator=(const trace_file &) = delete;

    bool on() const { return file != nullptr; }
    void write(const trace_event & event);

    static std::string line(const trace_event & event);

  private:
    void drop(const char * why);

    std::string path;
    std::FILE * file = nullptr;
};

// The process's trace, opened at first use.
trace_file & trace();

} // namespace ospec
