// Command-line options of drafting and acceptance, their environment variables, and the request
// keys that override them.
#pragma once

#include "ospec-types.h"

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

struct common_arg;

namespace ospec {

struct process_options {
    settings    request;      // what a request gets that says nothing
    std::string trace_path;   // NDJSON, one event a round; empty: off
    std::string think_open  = "<think>";
    std::string think_close = "</think>";
};

process_options & options();

void add_options(const std::function<void(common_arg)> & add);

// Fills `cfg` from one of the names throughput, lift, balanced, quality; throws for any other.
void apply_preset(settings & cfg, const std::string & name);

relax_scope   parse_scope(const std::string & text);
adaptive_mode parse_adaptive(const std::string & text);

// ---- request body --------------------------------------------------------------------------

namespace detail {

inline std::invalid_argument wrong(const char * key, const std::string & what) {
    return std::invalid_argument(std::string(key) + " must be " + what);
}

// The JSON type differs between tags, so these are templates on it.
template <class Json> void read(const Json & body, const char * key, int & value, int low, int high) {
    if (!body.contains(key)) {
        return;
    }
    const auto & item = body.at(key);
    const std::string range = "an integer from " + std::to_string(low) + " to " + std::to_string(high);
    if (!item.is_number_integer()) {
        throw wrong(key, range);
    }
    const auto number = item.template get<int64_t>();
    if (number < low || number > high) {
        throw wrong(key, range);
    }
    value = (int) number;
}

template <class Json> void read(const Json & body, const char * key, float & value, double low, double high) {
    if (!body.contains(key)) {
        return;
    }
    const auto & item = body.at(key);
    const std::string range = "a number from " + std::to_string(low) + " to " + std::to_string(high);
    if (!item.is_number()) {
        throw wrong(key, range);
    }
    const double number = item.template get<double>();
    if (!(number >= low && number <= high)) {
        throw wrong(key, range);
    }
    value = (float) number;
}

template <class Json> void read(const Json & body, const char * key, bool & value) {
    if (!body.contains(key)) {
        return;
    }
    const auto & item = body.at(key);
    if (!item.is_boolean()) {
        throw wrong(key, "true or false");
    }
    value = item.template get<bool>();
}

template <class Json> std::string text(const Json & body, const char * key) {
    if (!body.contains(key)) {
        return "";
    }
    const auto & item = body.at(key);
    if (!item.is_string()) {
        throw wrong(key, "a string");
    }
    return item.template get<std::string>();
}

} // namespace detail

// Settings of one request; a wrong type or range throws std::invalid_argument, which the server
// answers with HTTP 400, never silently with the default.
template <class Json> settings settings_of(const Json & body) {
    settings cfg = options().request;
    const std::string preset = detail::text(body, "speculative.preset");
    if (!preset.empty()) {
        apply_preset(cfg, preset);
    }
    detail::read(body, "speculative.relaxed_top_n",  cfg.top_n,         0, 1 << 20);
    detail::read(body, "speculative.relaxed_ratio",  cfg.ratio,         0.0, 1.0);
    detail::read(body, "speculative.relaxed_delta",  cfg.delta,         0.0, 1.0);
    detail::read(body, "speculative.relaxed_budget", cfg.budget,        0.0, 100.0);
    detail::read(body, "speculative.relaxed_window", cfg.window,        0, 64);
    detail::read(body, "speculative.relaxed_digits", cfg.digits);
    detail::read(body, "speculative.n_max",          cfg.n_max,         -1, 1024);
    detail::read(body, "speculative.skip_streak",    cfg.skip_streak,   0, 1 << 20);
    detail::read(body, "speculative.skip_cooldown",  cfg.skip_cooldown, 1, 1 << 20);
    const std::string scope = detail::text(body, "speculative.relaxed_scope");
    if (!scope.empty()) {
        cfg.scope = parse_scope(scope);
    }
    const std::string adaptive = detail::text(body, "speculative.adaptive");
    if (!adaptive.empty()) {
        cfg.adaptive = parse_adaptive(adaptive);
    }
    return cfg;
}

} // namespace ospec
