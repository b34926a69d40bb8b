// Options of sparse prefill, their environment variables and the request key `specprefill`.
#pragma once

#include "score.h"
#include "select.h"
#include "specprefill-types.h"

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

struct common_arg;

namespace ospec {

struct prefill_options {
    bool        on = false;           // for requests that say nothing
    std::string model;                // speculator; empty: the draft model, if it is a whole one
    int         min_tokens = 8192;
    keep_curve  keep = keep_curve::parse("8192:.4,32768:.25,131072:.15");
    std::optional<bool> compact;      // positions without gaps; unset: where the target has windowed layers
    bool        reuse    = true;      // later turns go on with the selection made before
    float       min_gain = 1.3f;      // predicted dense time over sparse time, at least; 0: always
    int         gpu_layers = 999;
    score_options  score;
    select_options select;

    // Nothing of ours runs unless a speculator was asked for.
    bool wanted() const { return on || !model.empty(); }
};

prefill_options & prefill_config();

void add_prefill_options(const std::function<void(common_arg)> & add);

namespace prefill_detail {

template <class Json> bool filled(const Json & body, const char * key) {
    if (!body.contains(key) || body.at(key).is_null()) {
        return false;
    }
    const auto & item = body.at(key);
    return item.is_string() ? !item.template get<std::string>().empty() : item.size() > 0;
}

template <class Json> bool is_structured(const Json & body) {
    if (filled(body, "tools") || filled(body, "grammar") || filled(body, "json_schema")) {
        return true;
    }
    if (body.contains("response_format") && body.at("response_format").is_object()) {
        const auto & format = body.at("response_format");
        if (format.contains("type") && format.at("type").is_string() &&
            format.at("type").template get<std::string>() != "text") {
            return true;
        }
    }
    if (body.contains("messages") && body.at("messages").is_array()) {
        const auto & messages = body.at("messages");
        for (size_t i = 0; i < messages.size(); ++i) {
            const auto & message = messages.at(i);
            if (message.is_object() && message.contains("role") && message.at("role").is_string() &&
                message.at("role").template get<std::string>() == "tool") {
                return true;
            }
        }
    }
    return false;
}

} // namespace prefill_detail

// `specprefill`: true, false or {"keep": share}. Throws std::invalid_argument, answered with 400.
template <class Json> prefill_request prefill_request_of(const Json & body) {
    prefill_request request;
    if (body.contains("specprefill") && !body.at("specprefill").is_null()) {
        const auto & item = body.at("specprefill");
        if (item.is_boolean()) {
            request.want = item.template get<bool>() ? prefill_request::wish::yes : prefill_request::wish::no;
        } else if (item.is_object() && item.size() == 1 && item.contains("keep") && item.at("keep").is_number()) {
            request.want = prefill_request::wish::yes;
            request.keep = (float) item.at("keep").template get<double>();
            if (!(request.keep > 0 && request.keep <= 1)) {
                throw std::invalid_argument("specprefill.keep must be above 0 and at most 1");
            }
        } else {
            throw std::invalid_argument("specprefill must be true, false or {\"keep\": share}");
        }
    }
    if (prefill_config().wanted()) {
        request.structured = prefill_detail::is_structured(body);
    }
    return request;
}

} // namespace ospec
