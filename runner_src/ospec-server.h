// What the hooks in tools/server/server-context.cpp call. Templates on the slot type, which is
// private to that file and differs between tags.
#pragma once

#include "ospec-guard.h"
#include "ospec-options.h"
#include "ospec-rule.h"
#include "ospec-trace.h"

#include "common.h"
#include "llama.h"
#include "sampling.h"

#include <algorithm>
#include <string>
#include <vector>

namespace ospec {

// Lives in server_slot. Forgets everything when the slot takes another task.
struct slot_state {
    int     task      = -1;
    int64_t last_base = -1;
    bool    replay    = false; // the round re-verifies its own result after a checkpoint was restored
    int     streak    = 0;     // rounds in a row without an accepted token
    int     pause     = 0;     // rounds left without drafting
    bool    thinking  = false;
    std::string    text_tail;  // enough generated text to find a think marker in
    regret_budget  budget;
    llama_tokens   history;    // generated tokens
    figures        sums;

    void begin(int task_id) {
        if (task != task_id) {
            *this = slot_state();
            task = task_id;
        }
    }
};

namespace detail {

// Samplers whose result depends on what was emitted in ways the raw logits do not show.
inline bool sampling_is_plain(const common_params_sampling & p) {
    const bool penalties = p.penalty_last_n != 0 &&
        (p.penalty_repeat != 1.0f || p.penalty_freq != 0.0f || p.penalty_present != 0.0f);
    return !penalties && p.dry_multiplier == 0.0f && p.mirostat == 0 && p.xtc_probability <= 0.0f &&
           p.adaptive_target < 0.0f && p.n_probs == 0;
}

inline bool is_end_or_control(const llama_vocab * vocab, llama_token token) {
    return llama_vocab_is_eog(vocab, token) || llama_vocab_is_control(vocab, token);
}

// Rows sampled on the device leave no raw logits on the host.
inline bool has_raw_logits(llama_context * ctx, int index) {
    return llama_get_sampled_token_ith(ctx, index) == LLAMA_TOKEN_NULL &&
           llama_get_sampled_logits_ith(ctx, index) == nullptr &&
           llama_get_sampled_probs_ith(ctx, index) == nullptr;
}

inline void follow_thinking(slot_state & state, const std::string & piece) {
    state.text_tail += piece;
    const process_options & opt = options();
    const size_t open = state.text_tail.rfind(opt.think_open), close = state.text_tail.rfind(opt.think_close);
    const auto at = [](size_t found) { return found == std::string::npos ? (int64_t) -1 : (int64_t) found; };
    if (at(open) != at(close)) {
        state.thinking = at(open) > at(close);
    }
    const size_t keep = std::max(opt.think_open.size(), opt.think_close.size());
    if (state.text_tail.size() > 4 * keep) {
        state.text_tail.erase(0, state.text_tail.size() - keep);
    }
}

// A chat template may open the thinking block itself, at the end of the prompt.
template <class Slot> void begin_thinking(slot_state & state, const Slot & slot) {
    const int end = (int) slot.task->n_tokens();
    for (int i = std::max(0, end - 32); i < end; ++i) {
        const llama_token token = slot.task->tokens[i];
        if (token != LLAMA_TOKEN_NULL) {
            follow_thinking(state, common_token_to_piece(slot.ctx_tgt, token, true));
        }
    }
}

} // namespace detail

template <class Slot> slot_state & state_of(const Slot & slot) {
    slot_state & state = slot.ospec_slot;
    const bool fresh = state.task != slot.task->id;
    state.begin(slot.task->id);
    if (fresh && slot.task->params.ospec_cfg.scope == relax_scope::thinking) {
        detail::begin_thinking(state, slot);
    }
    return state;
}

// Copies the sums to where the tag's timings are made from.
template <class Slot> auto publish_to(const Slot & slot, const slot_state & state, int)
        -> decltype(slot.stats.ospec_sums, void()) {
    slot.stats.ospec_sums = state.sums;
}
template <class Slot> void publish_to(const Slot &, const slot_state &, long) {}
template <class Slot> void publish(const Slot & slot, const slot_state & state) {
    publish_to(slot, state, 0);
}

// Upper limit of the draft for this round; 0 means the round decodes one token without a draft.
// A draft left over from a restored checkpoint must run: its tokens are already decided.
template <class Slot> int limit(const Slot & slot, int n_draft_max) {
    if (n_draft_max <= 0 || !slot.spec_draft.empty()) {
        return n_draft_max;
    }
    slot_state & state = state_of(slot);
    const settings & cfg = slot.task->params.ospec_cfg;
    if (cfg.n_max >= 0) {
        n_draft_max = std::min(n_draft_max, cfg.n_max);
    }
    if (n_draft_max > 0 && state.pause > 0) {
        state.pause--;
        state.sums.n_skipped++;
        publish(slot, state);
        return 0;
    }
    return n_draft_max;
}

// Why a drafted token that the target did not sample may not be taken; nullptr: it may.
// Each line is one guard of ALGORITHMS R1; tests/runner/accept shows what happens without it.
template <class Slot>
const char * refusal(const Slot & slot, const slot_state & state, common_sampler * smpl, llama_context * ctx,
                     int index, llama_token draft, llama_token sampled, standing & where) {
    const settings & cfg = slot.task->params.ospec_cfg;
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
    if (!detail::sampling_is_plain(slot.task->params.sampling))    { return "sampler"; }
    if (!detail::has_raw_logits(ctx, index))                       { return "backend"; }
    if (detail::is_end_or_control(vocab, draft))                   { return "control"; }
    if (detail::is_end_or_control(vocab, sampled))                 { return "control"; }
    if (cfg.scope == relax_scope::thinking && !state.thinking)     { return "scope"; }
    where = judge(llama_get_logits_ith(ctx, index), llama_vocab_n_tokens(vocab), draft, cfg.delta < 1.0f);
    if (!acceptable(where, cfg))                                   { return "rule"; }
    if (cfg.digits && (has_digit(common_token_to_piece(ctx, draft)) ||
                       has_digit(common_token_to_piece(ctx, sampled)))) { return "digit"; }
    if (extends_repetition(state.history, draft))                  { return "repetition"; }
    if (!state.budget.allows(where.regret, cfg.budget))            { return "budget"; }
    if (!token_allowed(smpl, draft))                               { return "grammar"; }
    return nullptr;
}

template <class Slot>
llama_tokens verify(const Slot & slot, slot_state & state, common_sampler * smpl, llama_context * ctx,
                    const std::vector<int32_t> & rows, const llama_tokens & draft, int64_t base) {
    const settings & cfg = slot.task->params.ospec_cfg;
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
    const int n_vocab = llama_vocab_n_tokens(vocab);
    const bool tracing = trace().on();
    trace_event event;
    const int64_t start = tracing ? ggml_time_us() : 0;

    llama_tokens result;
    for (size_t i = 0; i <= draft.size(); ++i) {
        const bool bonus = i == draft.size();
        // Always sample: the random generator then advances as it does without us.
        const llama_token sampled = common_sampler_sample(smpl, ctx, rows[i]);
        llama_token emitted = sampled;
        standing where;
        const char * verdict = bonus ? "bonus" : "match";
        if (!bonus && sampled != draft[i]) {
            if (state.replay) {
                // Logits of a smaller batch may differ in their last bits; judging anew could undo
                // what this very round decided.
                verdict = "replay";
                emitted = draft[i];
            } else {
                verdict = cfg.relaxed() ? refusal(slot, state, smpl, ctx, rows[i], draft[i], sampled, where) : "strict";
                if (verdict == nullptr) {
                    // The draft is what the target's KV and the drafter's hidden rows hold.
                    verdict = "relaxed";
                    emitted = draft[i];
                    state.sums.n_relaxed++;
                    state.sums.regret += where.regret;
                }
            }
        }
        common_sampler_accept(smpl, emitted, true);
        result.push_back(emitted);
        if (!state.replay || bonus) {
            state.budget.add(emitted == sampled ? 0.0f : where.regret);
            state.history.push_back(emitted);
            if (cfg.scope == relax_scope::thinking) {
                detail::follow_thinking(state, common_token_to_piece(ctx, emitted, true));
            }
        }
        if (tracing) {
            trace_position p;
            p.token = emitted;
            p.sampled = sampled;
            p.verdict = verdict;
            if (detail::has_raw_logits(ctx, rows[i])) {
                const float * logits = llama_get_logits_ith(ctx, rows[i]);
                const standing s = judge(logits, n_vocab, emitted, false);
                p.rank = s.rank;
                p.regret = s.regret;
                p.entropy3 = top3_entropy(logits, n_vocab);
            }
            event.positions.push_back(p);
        }
        if (bonus || emitted != draft[i] || llama_vocab_is_eog(vocab, emitted)) {
            break;
        }
    }
    if (tracing) {
        event.task = slot.task->id;
        event.slot = slot.id;
        event.base = base;
        event.replay = state.replay;
        event.relaxed = cfg.relaxed();
        event.draft = draft;
        event.t_us = ggml_time_us() - start;
        trace().write(event);
    }
    return result;
}

// Replaces the server's call of common_sampler_sample_and_accept_n.
template <class Slot>
llama_tokens accept(const Slot & slot, common_sampler * smpl, llama_context * ctx,
                    const std::vector<int32_t> & rows, const llama_tokens & draft) {
    slot_state & state = state_of(slot);
    // A round that starts where the last one did runs again on a restored checkpoint.
    const int64_t base = (int64_t) slot.prompt.n_tokens() - (int64_t) draft.size() - 1;
    state.replay = base == state.last_base;
    state.last_base = base;
    if (!slot.task->params.ospec_cfg.relaxed() && !trace().on()) {
        return common_sampler_sample_and_accept_n(smpl, ctx, rows, draft);
    }
    return verify(slot, state, smpl, ctx, rows, draft, base);
}

// After a round is final: `n_accepted` drafted tokens were taken.
template <class Slot> void accepted(const Slot & slot, size_t n_accepted) {
    slot_state & state = state_of(slot);
    const settings & cfg = slot.task->params.ospec_cfg;
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
    state.streak = n_accepted == 0 ? state.streak + 1 : 0;
    if (cfg.skip_streak > 0 && state.streak >= cfg.skip_streak) {
        state.streak = 0;
        state.pause = cfg.skip_cooldown;
    }
    publish(slot, state);
}

} // namespace ospec
