// What the hooks inside the draft loops of common/speculative.cpp call.
#pragma once

#include "ospec-depth.h"

#include "sampling.h"

namespace ospec {

namespace detail {

// Newer tags may sample the draft and keep the distribution it came from; such a draft is not ours
// to finish.
template <class Params> auto keeps_distribution(const Params & dp, int) -> decltype(dp.result_q != nullptr) {
    return dp.result_q != nullptr;
}
template <class Params> bool keeps_distribution(const Params &, long) { return false; }

} // namespace detail

// MTP: whether the token just sampled is the last one worth drafting. Adds it to the draft then:
// upstream only looks at the server's n_max and cuts the draft to size after paying for every step.
template <class Params>
bool ends_draft(Params & dp, llama_seq_id seq_id, common_sampler * smpl, float p_min) {
    const auto * candidates = common_sampler_get_candidates(smpl, true);
    if (detail::keeps_distribution(dp, 0) || candidates->data[0].p < p_min) {
        return false;
    }
    const bool full = dp.n_max > 0 && (int) dp.result->size() + 1 >= dp.n_max;
    if (!depth_of(seq_id).stop(candidates->data[0].p) && !full) {
        return false;
    }
    dp.result->push_back(candidates->data[0].id);
    return true;
}

} // namespace ospec
