// Command-line options of drafting and acceptance and their environment variables.
#pragma once

#include "ospec-types.h"

#include <functional>
#include <string>

struct common_arg;

namespace ospec {

struct process_options {
    settings    request;      // what a request gets that says nothing
    std::string trace_path;   // NDJSON, one event a round; empty: off
    std::string think_open;   // markers of the thinking block; empty: from the chat template
    std::string think_close;
};

process_options & options();

void add_options(const std::function<void(common_arg)> & add);

// Fills `cfg` from one of the names throughput, lift, balanced, quality; throws for any other.
void apply_preset(settings & cfg, const std::string & name);

relax_scope   parse_scope(const std::string & text);
adaptive_mode parse_adaptive(const std::string & text);

} // namespace ospec
