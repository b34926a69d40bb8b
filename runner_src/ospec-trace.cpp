#include "ospec-trace.h"

#include "ospec-options.h"

#include "log.h"

#include <cerrno>
#include <cstring>

namespace ospec {

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
    const std::string text = line(event);
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) {
        drop(std::strerror(errno));
    }
}

std::string trace_file::line(const trace_event & event) {
    std::string out = "{\"task\":" + std::to_string(event.task) + ",\"slot\":" + std::to_string(event.slot) +
        ",\"base\":" + std::to_string(event.base) + ",\"path\":\"" + (event.relaxed ? "relaxed" : "strict") +
        "\",\"replay\":" + (event.replay ? "true" : "false") + ",\"t_us\":" + std::to_string(event.t_us) + ",\"draft\":[";
    for (size_t i = 0; i < event.draft.size(); ++i) {
        out += (i ? "," : "") + std::to_string(event.draft[i]);
    }
    out += "],\"emitted\":[";
    for (size_t i = 0; i < event.positions.size(); ++i) {
        out += (i ? "," : "") + std::to_string(event.positions[i].token);
    }
    out += "],\"positions\":[";
    for (size_t i = 0; i < event.positions.size(); ++i) {
        const trace_position & p = event.positions[i];
        char text[192];
        std::snprintf(text, sizeof(text),
            "%s{\"token\":%d,\"sampled\":%d,\"rank\":%d,\"log_ratio\":%.6g,\"entropy3\":%.6g,\"verdict\":\"%s\"}",
            i ? "," : "", p.token, p.sampled, p.rank, -p.regret, p.entropy3, p.verdict);
        out += text;
    }
    return out + "]}\n";
}

trace_file & trace() {
    static trace_file instance(options().trace_path);
    return instance;
}

} // namespace ospec
