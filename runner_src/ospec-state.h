// What the overlay remembers of one server slot.
#pragma once

#include "ospec-depth.h"
#include "ospec-rule.h"
#include "ospec-skip.h"
#include "ospec-thinking.h"
#include "ospec-types.h"

#include "common.h"
#include "llama.h"
#include "ospec-options.h"

#include <algorithm>
#include <string>

namespace ospec {

// Lives in server_slot; forgets everything when the slot takes another task.
struct slot_state {
    int           task      = -1;
    int64_t       last_base = -1;    // where the last round started
    llama_tokens  last_result;       // what it gave
    bool          replay    = false; // this round runs its own result again on a restored checkpoint
    bool          forced    = false; // ... and takes it whatever the target draws now
    skip_policy   pause;
    regret_budget budget;
    think_tracker think;
    int64_t       think_seen = 0;    // tokens of the slot the tracker has read
    figures       sums;

    // Of the round in progress, for the cost of a round.
    int64_t t_round_us = 0;
    int     n_steps    = 0;          // tokens the drafter was run for
    int     n_drafted  = 0;          // ... and those of them that were verified
    int     n_tokens   = 0;          // the round before gave this many; 0: unknown
};

namespace detail {

inline think_markers markers_for(llama_context * ctx) {
    if (!options().think_open.empty()) {
        return { options().think_open, options().think_close };
    }
    const char * text = llama_model_chat_template(llama_get_model(ctx), nullptr);
    return markers_of(text ? text : "");
}

} // namespace detail

// The slot's state, cleared if the task is a new one.
template <class Slot> slot_state & state_of(const Slot & slot) {
    slot_state & state = slot.ospec_slot;
    if (state.task != slot.task->id) {
        state = slot_state();
        state.task = slot.task->id;
        if (slot.task->params.ospec_cfg.scope == relax_scope::thinking) {
            state.think = think_tracker(detail::markers_for(slot.ctx_tgt));
            // A chat template may open the thinking block itself, at the end of the prompt.
            state.think_seen = std::max<int64_t>(0, slot.task->n_tokens() - 32);
        }
    }
    return state;
}

// Lets the tracker read the slot's tokens up to position `end`.
template <class Slot> void follow_thinking(const Slot & slot, slot_state & state, int64_t end) {
    for (int64_t i = std::min(state.think_seen, end); i < end; ++i) {
        const llama_token token = slot.prompt.tokens[i];
        if (token != LLAMA_TOKEN_NULL) { // the place of an image
            state.think.feed(common_token_to_piece(slot.ctx_tgt, token, true));
        }
    }
    state.think_seen = end;
}

// Copies the sums to where the tag's timings are made from.
template <class Slot> auto publish_to(const Slot & slot, int) -> decltype(slot.stats.ospec_sums, void()) {
    slot.stats.ospec_sums = slot.ospec_slot.sums;
}
template <class Slot> void publish_to(const Slot &, long) {}
template <class Slot> void publish(const Slot & slot) { publish_to(slot, 0); }

} // namespace ospec
