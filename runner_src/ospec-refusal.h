// The guards: why a drafted token that the target did not sample may not be taken all the same.
#pragma once

#include "ospec-drafter.h"
#include "ospec-guard.h"
#include "ospec-state.h"

#include "common.h"
#include "llama.h"
#include "sampling.h"

#include <string>
#include <vector>

namespace ospec {

// One drafted token under judgement.
struct proposal {
    common_sampler *    smpl;
    llama_context *     ctx;
    int                 row;        // of the position in the batch's outputs
    llama_token         draft;
    llama_token         sampled;    // what the target's sampler drew instead
    bool                thinking;   // the position lies in a thinking block
    bool                by_lookup;  // an n-gram drafter proposed it
    const llama_tokens & history;   // the last tokens before the position
};

namespace detail {

// Samplers whose result depends on earlier tokens or on chance in ways the raw logits do not show.
inline const char * bent_sampling(const common_params_sampling & p) {
    const bool penalties = p.penalty_last_n != 0 &&
        (p.penalty_repeat != 1.0f || p.penalty_freq != 0.0f || p.penalty_present != 0.0f);
    if (penalties)                 { return "penalties"; }
    if (p.dry_multiplier != 0.0f)  { return "dry"; }
    if (p.mirostat != 0)           { return "mirostat"; }
    if (p.xtc_probability > 0.0f)  { return "xtc"; }
    if (p.adaptive_target >= 0.0f) { return "adaptive-p"; }
    return nullptr;
}

inline bool is_end_or_control(const llama_vocab * vocab, llama_token token) {
    return llama_vocab_is_eog(vocab, token) || llama_vocab_is_control(vocab, token);
}

// Rows sampled on the device leave no raw logits on the host; the buffer is stale, not null.
inline bool has_raw_logits(llama_context * ctx, int row) {
    return llama_get_sampled_token_ith(ctx, row) == LLAMA_TOKEN_NULL &&
           llama_get_sampled_logits_ith(ctx, row) == nullptr &&
           llama_get_sampled_probs_ith(ctx, row) == nullptr;
}

inline bool any_digit(llama_context * ctx, llama_token a, llama_token b) {
    return has_digit(common_token_to_piece(ctx, a)) || has_digit(common_token_to_piece(ctx, b));
}

} // namespace detail

// The guard that says no, or nullptr. `where` is filled once the logits were looked at. Each line
// below is one guard of ALGORITHMS R1; without it a test in tests/runner/accept fails.
template <class Params>
const char * refusal(const Params & params, const slot_state & state, const proposal & p, standing & where) {
    const settings & cfg = params.ospec_cfg;
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(p.ctx));
    if (const char * why = detail::bent_sampling(params.sampling)) { return why; }
    if (params.sampling.n_probs > 0)                               { return "logprobs"; }
    if (p.by_lookup)                                               { return "n-gram"; }
    if (!detail::has_raw_logits(p.ctx, p.row))                     { return "backend"; }
    if (detail::is_end_or_control(vocab, p.draft))                 { return "control"; }
    if (detail::is_end_or_control(vocab, p.sampled))               { return "control"; }
    if (cfg.scope == relax_scope::thinking && !p.thinking)         { return "scope"; }
    where = judge(llama_get_logits_ith(p.ctx, p.row), llama_vocab_n_tokens(vocab), p.draft, cfg.delta < 1.0f);
    if (!acceptable(where, cfg))                                   { return "rule"; }
    if (cfg.digits && detail::any_digit(p.ctx, p.draft, p.sampled)) { return "digit"; }
    if (extends_repetition(p.history, p.draft))                    { return "repetition"; }
    if (!state.budget.allows(where.regret, cfg.budget))            { return "budget"; }
    if (!token_allowed(p.smpl, p.draft))                           { return "grammar"; }
    return nullptr;
}

// FLy (arXiv 2511.22972): a mismatch at `at` is forgiven only if the target agrees with the next
// `window` drafted tokens. Asks a copy of the sampler, so its state and random draws stay as they are.
inline bool window_agrees(common_sampler * smpl, llama_context * ctx, const std::vector<int32_t> & rows,
                          const llama_tokens & draft, size_t at, int window) {
    if (at + window >= draft.size()) {
        return window == 0;
    }
    const common_sampler_ptr probe(common_sampler_clone(smpl));
    common_sampler_accept(probe.get(), draft[at], true);
    for (size_t i = at + 1; i <= at + window; ++i) {
        if (common_sampler_sample(probe.get(), ctx, rows[i]) != draft[i]) {
            return false;
        }
        common_sampler_accept(probe.get(), draft[i], true);
    }
    return true;
}

} // namespace ospec
