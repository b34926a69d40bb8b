// Our keys of the JSON object `timings`.
#pragma once

#include "ospec-types.h"

namespace ospec {

template <class Json> void write_timings(Json & timings, const figures & sums) {
    if (!sums.any()) {
        return;
    }
    timings["draft_n_rounds"]    = sums.n_rounds;
    timings["draft_n_relaxed"]   = sums.n_relaxed;
    timings["draft_n_skipped"]   = sums.n_skipped;
    timings["draft_n_dropped"]   = sums.n_dropped;
    timings["draft_regret_nats"] = sums.regret;
    Json per_position = Json::array();
    for (const uint32_t n : sums.accepted_at) {
        per_position.push_back(n);
    }
    timings["draft_accepted_per_pos"] = per_position;
}

} // namespace ospec
