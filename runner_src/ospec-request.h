// Keys of a request body that override the command line, e.g. "speculative.relaxed_top_n".
#pragma once

#include "ospec-options.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace ospec {

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

template <class Json, class Take> void read_text(const Json & body, const char * key, Take take) {
    if (!body.contains(key)) {
        return;
    }
    const auto & item = body.at(key);
    if (!item.is_string()) {
        throw wrong(key, "a string");
    }
    take(item.template get<std::string>());
}

} // namespace detail

// Settings of one request; a wrong type or range throws std::invalid_argument, which the server
// answers with HTTP 400, never silently with the default.
template <class Json> settings settings_of(const Json & body) {
    settings cfg = options().request;
    detail::read_text(body, "speculative.preset", [&](const std::string & name) { apply_preset(cfg, name); });
    detail::read(body, "speculative.relaxed_top_n",  cfg.top_n,         0, 1 << 20);
    detail::read(body, "speculative.relaxed_ratio",  cfg.ratio,         0.0, 1.0);
    detail::read(body, "speculative.relaxed_delta",  cfg.delta,         0.0, 1.0);
    detail::read(body, "speculative.relaxed_budget", cfg.budget,        0.0, 100.0);
    detail::read(body, "speculative.relaxed_window", cfg.window,        0, 64);
    detail::read(body, "speculative.relaxed_digits", cfg.digits);
    detail::read(body, "speculative.n_max",          cfg.n_max,         -1, 1024);
    detail::read(body, "speculative.skip_streak",    cfg.skip_streak,   0, 1 << 20);
    detail::read(body, "speculative.skip_cooldown",  cfg.skip_cooldown, 1, 1 << 20);
    detail::read_text(body, "speculative.relaxed_scope",
        [&](const std::string & name) { cfg.scope = parse_scope(name); });
    detail::read_text(body, "speculative.adaptive",
        [&](const std::string & name) { cfg.adaptive = parse_adaptive(name); });
    return cfg;
}

} // namespace ospec
