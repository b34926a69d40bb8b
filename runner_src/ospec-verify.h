// Verification of one draft: what the server's common_sampler_sample_and_accept_n does, plus the
// relaxed rule on mismatches, forced acceptance on a replay, and the trace.
#pragma once

#include "ospec-metrics.h"
#include "ospec-refusal.h"
#include "ospec-trace.h"

#include "ggml.h"

#include <cstring>
#include <functional>

namespace ospec {

// The exact p/q rule for the drafted token at a position, where the tag has it: the token to emit.
using exact_rule = std::function<llama_token(size_t position)>;

namespace detail {

// The tokens before the round: enough for the repetition guard. `base` is the position of the
// round's first token, which the target chose.
template <class Slot> llama_tokens recent(const Slot & slot, int64_t base) {
    llama_tokens tail;
    for (int64_t i = std::max<int64_t>(0, base - 32); i <= base; ++i) {
        tail.push_back(slot.prompt.tokens[i]);
    }
    return tail;
}

inline trace_position describe(llama_context * ctx, int row, llama_token emitted, llama_token sampled,
                               llama_token draft, const char * verdict) {
    trace_position p;
    p.token   = emitted;
    p.sampled = sampled;
    p.verdict = verdict;
    if (has_raw_logits(ctx, row)) {
        const float * logits = llama_get_logits_ith(ctx, row);
        const int n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
        const standing own = judge(logits, n, emitted, false);
        p.rank = own.rank;
        p.regret = own.regret;
        p.entropy3 = top3_entropy(logits, n);
        if (draft != LLAMA_TOKEN_NULL) {
            const standing drafted = judge(logits, n, draft, false);
            p.draft_rank = drafted.rank;
            p.draft_regret = drafted.regret;
        }
    }
    return p;
}

} // namespace detail

template <class Slot>
llama_tokens verify(const Slot & slot, slot_state & state, common_sampler * smpl, llama_context * ctx,
                    const std::vector<int32_t> & rows, const llama_tokens & draft, int64_t base, bool by_lookup,
                    trace_event * event, const exact_rule & exact = {}) {
    const auto & params = slot.task->params;
    const settings & cfg = params.ospec_cfg;
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
    const bool scoped = cfg.relaxed() && cfg.scope == relax_scope::thinking;
    if (scoped) {
        follow_thinking(slot, state, base + 1);
    }
    think_tracker think = state.think; // reads this round's tokens ahead of the slot
    llama_tokens history = cfg.relaxed() ? detail::recent(slot, base) : llama_tokens();

    llama_tokens result;
    for (size_t i = 0; i <= draft.size(); ++i) {
        const bool bonus = i == draft.size();
        // Always sample: the random generator then advances as it does without us.
        const llama_token sampled = common_sampler_sample(smpl, ctx, rows[i]);
        llama_token emitted = sampled;
        standing where;
        const char * verdict = bonus ? "bonus" : "match";
        const bool same = !bonus && sampled == draft[i];
        // With the exact rule even a match is not accepted before its coin was thrown.
        if (!bonus && (!same || exact)) {
            if (state.forced) {
                // Logits of another batch size differ in their last bits: judging anew could undo
                // what this very round decided.
                verdict = "replay";
                emitted = draft[i];
            } else if (!cfg.relaxed()) {
                emitted = exact ? exact(i) : sampled;
                verdict = emitted == draft[i] ? "coin" : "strict";
            } else {
                const proposal p = { smpl, ctx, rows[i], draft[i], sampled, think.inside(), by_lookup, history };
                verdict = refusal(params, state, p, where);
                if (!verdict && !window_agrees(smpl, ctx, rows, draft, i, cfg.window)) {
                    verdict = "window";
                }
                if (!verdict) {
                    // The draft, not the sample: the target's KV and the drafter's rows hold it.
                    verdict = same ? "match" : "relaxed";
                    emitted = draft[i];
                } else if (exact) {
                    emitted = exact(i);
                    verdict = emitted == draft[i] ? "coin" : verdict;
                }
            }
        }
        const bool relaxed = !std::strcmp(verdict, "relaxed");
        if (relaxed) {
            state.sums.n_relaxed++;
            state.sums.regret += where.regret;
            count_relaxed(where.regret);
        }
        if (event) {
            event->positions.push_back(detail::describe(ctx, rows[i], emitted, sampled,
                                                        bonus ? LLAMA_TOKEN_NULL : draft[i], verdict));
        }
        common_sampler_accept(smpl, emitted, true);
        result.push_back(emitted);
        if (!state.replay || bonus) {
            state.budget.add(relaxed ? where.regret : 0.0f);
        }
        if (cfg.relaxed()) {
            history.push_back(emitted);
            if (scoped) {
                think.feed(common_token_to_piece(ctx, emitted, true));
            }
        }
        if (bonus || emitted != draft[i]) {
            break;
        }
        // Nothing after an end token is wanted. An end token at the very end of a draft goes on to
        // the bonus token: a replay must consume its whole draft, or it would be rolled back forever.
        if (llama_vocab_is_eog(vocab, emitted) && i + 1 < draft.size() && !state.forced) {
            break;
        }
    }
    if (event) {
        for (size_t i = result.size(); i < draft.size(); ++i) {
            event->untested.push_back(detail::describe(ctx, rows[i], draft[i], -1, draft[i], "untested"));
        }
    }
    return result;
}

} // namespace ospec
