// What the hooks in tools/server/server-context.cpp call. Templates on the slot type, which is
// private to that file and differs between tags.
#pragma once

#include "ospec-lag.h"
#include "ospec-request.h"
#include "ospec-reuse.h"
#include "ospec-state.h"
#include "ospec-threads.h"
#include "ospec-verify.h"

#include "log.h"

namespace ospec {

namespace detail {

// Newer tags say so themselves. Elsewhere: a round that starts where the last one did, with that
// round's result as its draft, runs again on a restored checkpoint.
template <class Slot>
auto is_replay(const Slot & slot, const slot_state &, const llama_tokens &, int64_t, int)
        -> decltype((bool) slot.spec_is_replay) {
    return slot.spec_is_replay;
}
template <class Slot>
bool is_replay(const Slot &, const slot_state & state, const llama_tokens & draft, int64_t base, long) {
    return base == state.last_base && draft == state.last_result;
}

template <class Slot> auto shorten(Slot & slot, size_t n, int) -> decltype(slot.spec_draft_q.size(), void()) {
    slot.spec_draft.resize(n);
    slot.spec_draft_q.resize(std::min(n, slot.spec_draft_q.size()));
}
template <class Slot> void shorten(Slot & slot, size_t n, long) { slot.spec_draft.resize(n); }

struct draft_clock {
    int64_t started_us = 0;
    int64_t spent_us   = 0;
};
inline draft_clock & clock_of_draft() {
    static draft_clock instance;
    return instance;
}

template <class Slot> void trace_skip(const Slot & slot, const char * path) {
    if (trace().on()) {
        trace_event event;
        event.task = slot.task->id;
        event.slot = slot.id;
        event.base = slot.prompt.n_tokens();
        event.path = path;
        trace().write(event);
    }
}

// Feeds the cost of the round that just ended into the slot's depth policy.
template <class Slot> void measure_round(const Slot & slot, slot_state & state) {
    const int64_t now = ggml_time_us();
    if (state.t_round_us > 0 && state.n_tokens > 0) {
        const double draft_ms = state.n_steps > 0 ? clock_of_draft().spent_us / 1000.0 : 0;
        const double total_ms = (now - state.t_round_us) / 1000.0;
        depth_of(slot.id).measure(state.n_steps, state.n_drafted, state.n_tokens, draft_ms, total_ms);
    }
    state.t_round_us = now;
    state.n_steps = 0;
    state.n_drafted = 0;
    state.n_tokens = 1; // unless accepted() says more
}

template <class Slot> int skipped(const Slot & slot, slot_state & state, const char * path) {
    state.sums.n_skipped++;
    count_skipped();
    publish(slot);
    trace_skip(slot, path);
    return 0;
}

// A round without a draft that was not even asked for one.
template <class Slot> int idle(const Slot & slot, slot_state & state, const char * path) {
    reads_now(slot, false);
    return skipped(slot, state, path);
}

} // namespace detail

// Upper limit of the draft for this round; 0: the round decodes one token without a draft. A draft
// left over from a restored checkpoint must run: its tokens are already decided.
template <class Slot> int limit(const Slot & slot, int n_draft_max) {
    slot_state & state = state_of(slot);
    if (n_draft_max <= 0 || !slot.spec_draft.empty()) {
        return n_draft_max;
    }
    const settings & cfg = slot.task->params.ospec_cfg;
    if (cfg.n_max >= 0) {
        n_draft_max = std::min(n_draft_max, cfg.n_max);
        if (n_draft_max == 0) {
            return detail::idle(slot, state, "skip-request");
        }
    }
    if (state.pause.skip()) {
        return detail::idle(slot, state, "skip-streak");
    }
    depth_policy & depth = depth_of(slot.id);
    const bool fresh = state.t_round_us == 0;
    if (cfg.adaptive != adaptive_mode::off) {
        detail::measure_round(slot, state);
    }
    const int deep = depth.begin(cfg.adaptive, n_draft_max, fresh);
    if (deep == 0) {
        return detail::idle(slot, state, "skip-cost");
    }
    if (reads_now(slot, true) && cfg.adaptive != adaptive_mode::off) {
        state.t_round_us = ggml_time_us(); // no part of what this round's batch costs
    }
    return deep;
}

// Around the server's call of common_speculative_draft for the slots `drafting`. Drops what is not
// worth verifying.
inline void draft_begin() { detail::clock_of_draft().started_us = ggml_time_us(); }
template <class Slots> void draft_end(const Slots & drafting) {
    detail::draft_clock & clock = detail::clock_of_draft();
    clock.spent_us = ggml_time_us() - clock.started_us;
    for (auto * slot : drafting) {
        slot_state & state = state_of(*slot);
        const int n = state.n_steps = (int) slot->spec_draft.size();
        const int kept = n > 0 ? depth_of(slot->id).keep(n) : 0;
        state.sums.n_dropped += n - kept;
        if (kept < n) {
            detail::shorten(*slot, kept, 0);
            if (kept == 0) {
                detail::skipped(*slot, state, "skip-cost");
            }
        }
    }
}

// A copy of the sampler to go back to when a checkpoint is restored; none is needed, or made, where
// the target's memory can drop single tokens: on a large vocabulary it costs megabytes every round.
template <class SeqRmType> common_sampler * save_sampler(common_sampler * smpl, SeqRmType type) {
    return type == COMMON_CONTEXT_SEQ_RM_TYPE_PART ? nullptr : common_sampler_clone(smpl);
}

// Replaces the server's call of common_sampler_sample_and_accept_n.
template <class Slot>
llama_tokens accept(const Slot & slot, common_speculative * spec, common_sampler * smpl, llama_context * ctx,
                    const std::vector<int32_t> & rows, const llama_tokens & draft, const exact_rule & exact = {},
                    bool decided = false) {
    slot_state & state = state_of(slot);
    const int64_t base = (int64_t) slot.prompt.n_tokens() - (int64_t) draft.size() - 1;
    state.replay = decided || detail::is_replay(slot, state, draft, base, 0);
    state.forced = decided || (state.replay && slot.task->params.ospec_cfg.relaxed());
    state.last_base = base;
    if (!state.replay) {
        state.n_drafted = (int) draft.size();
    }
    const bool by_lookup = drafted_by_lookup(spec, slot.id);
    if (!trace().on()) {
        state.last_result = verify(slot, state, smpl, ctx, rows, draft, base, by_lookup, nullptr, exact);
        return state.last_result;
    }
    trace_event event;
    event.task     = slot.task->id;
    event.slot     = slot.id;
    event.base     = base;
    event.id_last  = slot.sampled;
    event.path     = state.replay ? "replay" : by_lookup ? "n-gram" : "draft";
    event.relaxed  = slot.task->params.ospec_cfg.relaxed();
    event.replay   = state.replay;
    event.draft    = draft;
    event.draft_p  = depth_of(slot.id).confidences();
    event.h_l2     = hidden_norm(spec, slot.id);
    event.draft_us = detail::clock_of_draft().spent_us;
    const int64_t start = ggml_time_us();
    state.last_result = verify(slot, state, smpl, ctx, rows, draft, base, by_lookup, &event, exact);
    event.verify_us = ggml_time_us() - start;
    trace().write(event);
    return state.last_result;
}

// Replaces the call of server_accept_replay, at tags that run a replay's tokens without asking the
// sampler: the same, with our trace.
template <class Slot>
llama_tokens accept_replay(const Slot & slot, common_speculative * spec, common_sampler * smpl, llama_context * ctx,
                           const std::vector<int32_t> & rows, const llama_tokens & draft) {
    return accept(slot, spec, smpl, ctx, rows, draft, {}, true);
}

// Replaces the call of common_sampler_sample_and_accept_n_rejection, at tags that draw drafts from
// the drafter's distribution `q` (--spec-draft-sampling probabilistic): a token the relaxed rule takes
// needs no coin, any other gets the exact p/q rule. `Sampler` is a parameter so that tags without
// that function never look for it.
template <class Slot, class Sampler, class Distributions>
llama_tokens accept_drawn(const Slot & slot, common_speculative * spec, Sampler * smpl, llama_context * ctx,
                          const std::vector<int32_t> & rows, const llama_tokens & draft, const Distributions & q) {
    if (!slot.task->params.ospec_cfg.relaxed() && !trace().on()) {
        slot_state & state = state_of(slot);
        state.replay = false;
        state.n_drafted = (int) draft.size();
        return common_sampler_sample_and_accept_n_rejection(smpl, ctx, rows, draft, q);
    }
    return accept(slot, spec, smpl, ctx, rows, draft, [&](size_t i) {
        // A copy decides, since that function goes on to the next token; the coin must not be thrown twice.
        const common_sampler_ptr copy(common_sampler_clone(smpl));
        const llama_tokens given = common_sampler_sample_and_accept_n_rejection(
            static_cast<Sampler *>(copy.get()), ctx, { rows[i], rows[i + 1] }, { draft[i] }, Distributions{ q[i] });
        follow_random(smpl, copy.get());
        return given.front();
    });
}

// After a round is final: `n_accepted` drafted tokens were taken.
template <class Slot> void accepted(const Slot & slot, size_t n_accepted) {
    slot_state & state = state_of(slot);
    const settings & cfg = slot.task->params.ospec_cfg;
    state.n_tokens = (int) n_accepted + 1;
    if (state.replay && n_accepted > 0) {
        n_accepted--; // the last one was the target's own choice
    }
    figures & sums = state.sums;
    sums.n_rounds++;
    if (sums.accepted_at.size() < n_accepted) {
        sums.accepted_at.resize(n_accepted);
    }
    for (size_t i = 0; i < n_accepted; ++i) {
        sums.accepted_at[i]++;
    }
    count_round(state.n_drafted, n_accepted);
    state.pause.round((int) n_accepted, cfg.skip_streak, cfg.skip_cooldown);
    if (cfg.adaptive != adaptive_mode::off) {
        depth_of(slot.id).learn(state.n_drafted, (int) n_accepted);
    }
    publish(slot);
}

// Several slots on one drafter. From b9628 until some tag after b10488 (fixed by b11434) the rows of
// hidden state an MTP drafter reads are stored in another order than they are read in when slots of
// unequal length have split KV; a unified KV never reorders. Figures: wired pair, .71 instead of .74.
template <class Params> void unify_kv(Params & params) {
    bool reads_rows = false;
    for (const auto type : params.speculative.types) {
        const std::string name = common_speculative_type_to_str(type);
        reads_rows = reads_rows || name.find("mtp") != std::string::npos || name.find("eagle") != std::string::npos;
    }
    if (reads_rows && params.n_parallel > 1 && !params.kv_unified) {
        LOG_WRN("drafting for %d slots: using a unified KV, since a split one mixes up the drafter's rows at this version\n",
                params.n_parallel);
        params.kv_unified = true;
    }
}

} // namespace ospec
