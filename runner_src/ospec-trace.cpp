#include "ospec-trace.h"

#include "ospec-options.h"

#include "log.h"

#include <cerrno>
#include <cstring>

namespace ospec {

namespace {

std::string list(const std::vector<int32_t> & tokens) {
    std::string out;
    for (const int32_t token : tokens) {
        out += (out.empty() ? "" : ",") + std::to_string(token);
    }
    return "[" + out + "]";
}

std::string list(const std::vector<float> & numbers) {
    std::string out;
    for (const float number : numbers) {
        char text[32];
        std::snprintf(text, sizeof(text), "%s%.4g", out.empty() ? "" : ",", number);
        out += text;
    }
    return "[" + out + "]";
}

std::string list(const std::vector<trace_position> & positions) {
    std::string out;
    for (const trace_position & p : positions) {
        char text[256];
        std::snprintf(text, sizeof(text),
            "%s{\"token\":%d,\"sampled\":%d,\"rank\":%d,\"log_ratio\":%.6g,\"entropy3\":%.6g,"
            "\"draft_rank\":%d,\"draft_log_ratio\":%.6g,\"verdict\":\"%s\"}",
            out.empty() ? "" : ",", p.token, p.sampled, p.rank, -p.regret, p.entropy3,
            p.draft_rank, -p.draft_regret, p.verdict);
        out += text;
    }
    return "[" + out + "]";
}

} // namespace

std::string trace_line(const trace_event & event, uint64_t iter) {
    std::vector<int32_t> emitted;
    for (const trace_position & p : event.positions) {
        emitted.push_back(p.token);
    }
    const size_t n_accepted = emitted.empty() ? 0 : emitted.size() - 1;
    char text[512];
    std::snprintf(text, sizeof(text),
        "{\"iter\":%llu,\"task\":%d,\"seq_id\":%d,\"path\":\"%s\",\"replay\":%s,\"relaxed\":%s,\"id_last\":%d,"
        "\"attn_pos\":%lld,\"h_idx\":%zu,\"h_l2\":%.6g,\"n_steps\":%zu,\"n_accepted\":%zu,\"n_drafted\":%zu,"
        "\"draft_us\":%lld,\"verify_us\":%lld,",
        (unsigned long long) iter, event.task, event.slot, event.path, event.replay ? "true" : "false",
        event.relaxed ? "true" : "false", event.id_last, (long long) event.base, n_accepted, event.h_l2,
        event.draft.size(), n_accepted, event.draft.size(), (long long) event.draft_us, (long long) event.verify_us);
    return text + ("\"drafts\":" + list(event.draft)) + ",\"draft_p\":" + list(event.draft_p) + ",\"emitted\":" + list(emitted) +
           ",\"positions\":" + list(event.positions) + ",\"untested\":" + list(event.untested) + "}\n";
}

trace_file::trace_file(const std::string & path) : path(path) {
    if (path.empty()) {
        return;
    }
    file = std::fopen(path.c_str(), "a");
    if (!file) {
        drop(std::strerror(errno));
    }
}

trace_file::~trace_file() {
    if (file) {
        std::fclose(file);
    }
}

void trace_file::drop(const char * why) {
    // A trace is never worth an answer: say it once and go on without.
    LOG_WRN("trace: dropped %s: %s\n", path.c_str(), why);
    if (file) {
        std::fclose(file);
        file = nullptr;
    }
}

void trace_file::write(const trace_event & event) {
    if (!file) {
        return;
    }
    const std::string text = trace_line(event, iter++);
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) {
        drop(std::strerror(errno));
    }
}

trace_file & trace() {
    static trace_file instance(options().trace_path);
    return instance;
}

} // namespace ospec
