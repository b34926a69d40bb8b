// What the hooks in tools/server/server-context.cpp call. Templates on the server's types, which are
// private to that file and differ between tags.
#pragma once

#include "prefill.h"

#include "common.h"
#include "speculative.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace ospec {

namespace prefill_detail {

inline llama_model * raw(llama_model * model) { return model; }
template <class Pointer> auto raw(const Pointer & model) -> decltype(model.get()) { return model.get(); }

template <class Slot> auto clear(Slot & slot, int) -> decltype(slot.prompt_clear(), void()) { slot.prompt_clear(); }
template <class Slot> auto clear(Slot & slot, long) -> decltype(slot.prompt_clear(false), void()) { slot.prompt_clear(false); }

// Newer tags answer /metrics meanwhile.
template <class Queue, class Work> auto run(Queue & queue, Work work, int)
        -> decltype(queue.yield_to_queue(work), void()) {
    queue.yield_to_queue(work);
}
template <class Queue, class Work> void run(Queue &, Work work, long) { work(); }

template <class Slot> auto publish(const Slot & slot, int) -> decltype(slot.stats.ospec_prefill, void()) {
    slot.stats.ospec_prefill = slot.ospec_prefill.figures;
}
template <class Slot> void publish(const Slot &, long) {}

template <class Slot> llama_pos pos_max(const Slot & slot) {
    return llama_memory_seq_pos_max(llama_get_memory(slot.ctx_tgt), slot.id);
}

// Not insert(): it refuses the lists of a server that could take images.
template <class Tokens> void append(Tokens & to, const llama_token * from, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        to.push_back(from[i]);
    }
}

inline int shared(const std::vector<llama_token> & a, const std::vector<llama_token> & b) {
    const size_t n = std::min(a.size(), b.size());
    return (int) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

// What a shortened prompt consists of; `kept` may be longer.
inline std::vector<llama_token> packed(const std::vector<llama_token> & tokens, const std::vector<uint8_t> & kept) {
    std::vector<llama_token> some;
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (kept[i]) {
            some.push_back(tokens[i]);
        }
    }
    return some;
}

// Drafters that read the target's hidden rows by position; holes were never tried with them.
inline std::string unknown_drafter(const common_params & params) {
    for (const auto type : params.speculative.types) {
        const std::string name = common_speculative_type_to_str(type);
        for (const char * part : { "eagle", "dflash", "dspark" }) {
            if (name.find(part) != std::string::npos) {
                return name;
            }
        }
    }
    return "";
}

// An MTP or EAGLE drafter cannot read a prompt on its own.
inline bool draft_is_whole(const common_params & params) {
    const auto & types = params.speculative.types;
    return std::find(types.begin(), types.end(), COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE) != types.end();
}

} // namespace prefill_detail

// After the target is loaded.
template <class Target, class Draft>
void prefill_load(const Target & target, llama_context * ctx, const Draft & draft, const common_params & params) {
    llama_model * model = prefill_detail::raw(target);
    llama_model * whole = prefill_detail::draft_is_whole(params) ? prefill_detail::raw(draft) : nullptr;
    const int threads = params.cpuparams_batch.n_threads > 0 ? params.cpuparams_batch.n_threads : params.cpuparams.n_threads;
    // With a cache shared by slots the server frees space by looking at token lists, which a frozen
    // turn does not show.
    const bool freeze = !params.kv_unified || params.n_parallel == 1;
    prefill().load(model, ctx, whole, threads, freeze);
    const std::string drafter = prefill_detail::unknown_drafter(params);
    if (!drafter.empty()) {
        prefill().refuse("not tried together with " + drafter);
    }
}

inline void prefill_unload() {
    prefill().unload();
}

// Makes the task's tokens changeable: see the compact branch of prefill_wait.
template <class Task> std::unique_ptr<const Task> prefill_task(Task && task) {
    return std::make_unique<Task>(std::move(task));
}

namespace prefill_detail {

template <class Slot> void begin(Slot & slot) {
    prefill_slot & p = slot.ospec_prefill;
    const auto frozen = std::move(p.frozen);
    p = prefill_slot();
    p.task = p.figures.task = slot.task->id;
    p.request = slot.task->params.ospec_prefill;
    p.prompt = slot.task->tokens.get_text_tokens();
    p.figures.n_prompt = p.figures.n_kept = (int) slot.task->n_tokens();
    p.at = prefill_slot::phase::waiting;
    if (slot.task->need_embd() || !slot.task->need_logits() || slot.task->is_parent() || slot.task->is_child()) {
        return p.finish("disabled"); // only a plain completion is ours
    }
    if (p.prompt.size() != (size_t) slot.task->n_tokens()) {
        return p.finish("skipped_mtmd");
    }
    const bool cache = slot.task->params.cache_prompt;
    int n_cached = cache ? (int) slot.prompt.tokens.get_common_prefix(slot.task->tokens) : 0;
    if (cache && !frozen.tokens.empty() && slot.prompt.tokens.empty() && frozen.pos_max == pos_max(slot)) {
        const int turn = shared(frozen.tokens, p.prompt);
        const bool goes_on = turn > frozen.last_hole + 1 && turn < (int) p.prompt.size();
        p.n_shared = goes_on ? turn : 0;
        n_cached = goes_on ? turn : std::min(turn, frozen.first_hole);
        p.frozen = frozen;
    }
    const char * status = prefill().refusal(p, (int) p.prompt.size() - n_cached);
    if (status) {
        p.n_shared = 0;
        p.figures.reason = prefill().reason(status);
        p.finish(status);
    }
}

// The decision is made: bring the slot into the state the server's own code goes on from.
template <class Slot> void settle(Slot & slot) {
    prefill_slot & p = slot.ospec_prefill;
    if (!p.frozen.tokens.empty()) {
        // Before its first hole the frozen turn is a cache like any other.
        const int n = p.n_shared > 0 ? p.n_shared : p.frozen.first_hole;
        std::vector<llama_token> cached(p.frozen.tokens.begin(), p.frozen.tokens.begin() + n);
        if (p.compact) {
            cached = packed(cached, p.frozen.kept);
        }
        append(slot.prompt.tokens, cached.data(), cached.size());
    }
    if (p.compact) {
        const std::vector<llama_token> some = packed(p.prompt, p.kept);
        auto & tokens = const_cast<std::remove_const_t<std::remove_reference_t<decltype(slot.task->tokens)>> &>(slot.task->tokens);
        tokens.clear();
        append(tokens, some.data(), some.size());
    }
    p.frozen = {};
}

} // namespace prefill_detail

// Before a slot's prompt is looked at: true while it must wait for its scores.
// `n_empty` counts rounds without a token to decode; some tags stop the process after a few, but
// scoring is work, too.
template <class Slots, class Queue, class Slot>
bool prefill_wait(const Slots & slots, Queue & queue, int & n_empty, Slot & slot) {
    if (!prefill().set_up()) {
        return false;
    }
    prefill_slot & p = slot.ospec_prefill;
    if (p.task != slot.task->id) {
        prefill_detail::begin(slot);
    } else if (p.at == prefill_slot::phase::ready) {
        return false;
    }
    if (p.at != prefill_slot::phase::ready) {
        bool alone = true;
        for (const auto & other : slots) {
            alone = alone && (&other == &slot || !other.is_processing());
        }
        bool done = false;
        prefill_detail::run(queue, [&] { done = prefill().step(p, slot.id, alone); }, 0);
        if (!done) {
            n_empty = 0;
            return true;
        }
    }
    prefill_detail::settle(slot);
    prefill_detail::publish(slot, 0);
    return false;
}

// After the server decided that the first `n_past` tokens are in the cache.
template <class Slot> void prefill_plan(Slot & slot, int n_past) {
    prefill_slot & p = slot.ospec_prefill;
    if (p.task != slot.task->id || p.at != prefill_slot::phase::ready) {
        return;
    }
    if (!p.kept.empty()) {
        const int n = (int) p.kept.size();
        int cached = std::min(n, n_past); // tokens of the prompt, holes among them
        if (p.compact) {
            cached = 0;
            for (int read = 0; read < n_past && cached < n; ++cached) {
                read += p.kept[cached];
            }
            p.figures.n_hidden = cached - n_past;
        } else if (p.n_shared == 0) {
            std::fill_n(p.kept.begin(), cached, (uint8_t) 1); // a dense prefix is there already
        }
        p.figures.n_kept   = (int) std::count(p.kept.begin(), p.kept.end(), 1);
        p.figures.n_sparse = (int) std::count(p.kept.begin() + cached, p.kept.end(), 0);
        p.holes = !p.compact && p.figures.n_kept < n;
    }
    prefill_detail::publish(slot, 0);
}

// Whether the target leaves out the token the server is about to add.
template <class Slot> bool prefill_skip(const Slot & slot, llama_token token) {
    const prefill_slot & p = slot.ospec_prefill;
    const size_t i = slot.prompt.n_tokens();
    return p.holes && p.task == slot.task->id && token != LLAMA_TOKEN_NULL && i < p.kept.size() && !p.kept[i];
}

// The slot is idle again. Nothing may take a cache with holes for a complete one, and a later turn of a
// shortened prompt is no continuation of the short one: both are hidden until begin() knows them.
template <class Slot> void prefill_release(Slot & slot) {
    prefill_slot & p = slot.ospec_prefill;
    prefill().abandon(slot.id);
    if (p.holes || p.compact) {
        const std::vector<llama_token> tokens = slot.prompt.tokens.get_text_tokens();
        const std::vector<llama_token> read = p.compact ? prefill_detail::packed(p.prompt, p.kept) : p.prompt;
        const size_t n = read.size();
        // Not after a context shift, nor when the prompt was not finished.
        if (prefill().freezes() && prefill_detail::shared(tokens, read) == (int) n) {
            auto & f = p.frozen;
            f.tokens = p.prompt;
            f.tokens.insert(f.tokens.end(), tokens.begin() + n, tokens.end());
            f.kept = p.kept;
            f.kept.resize(f.tokens.size(), 1);
            f.first_hole = (int) (std::find(f.kept.begin(), f.kept.end(), 0) - f.kept.begin());
            f.last_hole = (int) (std::find(f.kept.rbegin(), f.kept.rend(), 0).base() - f.kept.begin()) - 1;
            f.pos_max = prefill_detail::pos_max(slot);
            slot.prompt.tokens.clear();
        } else if (p.holes) {
            prefill_detail::clear(slot, 0);
        }
    }
    p.compact = false;
    p.holes = false;
    p.at = prefill_slot::phase::idle;
    p.task = -1;
    p.kept.clear();
    p.prompt.clear();
}

} // namespace ospec
