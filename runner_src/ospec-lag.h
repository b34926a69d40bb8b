// The drafter need not read what it drafts nothing after: it catches up when it is asked again.
#pragma once

#include "llama.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ospec {

// Upstream has the drafter read every token, drafted or not. With SmolLM2 Q2_K on 2 cores that is
// 6 ms of a round of 70, while a batch of the same tokens takes a third of it. Only a plain draft
// model may lag: others read the target's hidden rows, which are gone by then.
struct reading_lag {
    bool                     idle  = false; // this round drafts nothing
    llama_pos                start = 0;     // of the first token not read
    std::vector<llama_token> tokens;
};

inline std::map<llama_seq_id, reading_lag> & reading_lags() {
    static std::map<llama_seq_id, reading_lag> instance;
    return instance;
}

// Whether the drafter may read this token later; it is remembered then. False where it does not follow
// on the last one (the context was shifted): then what is remembered is of no use either.
inline bool read_later(llama_seq_id seq, llama_pos pos, llama_token token) {
    const auto found = reading_lags().find(seq);
    if (found == reading_lags().end() || !found->second.idle) {
        return false;
    }
    reading_lag & lag = found->second;
    if (lag.tokens.empty()) {
        lag.start = pos;
    }
    if (pos != lag.start + (llama_pos) lag.tokens.size()) {
        return false;
    }
    lag.tokens.push_back(token);
    return true;
}

// Has the drafter read what it left out. Where it cannot, it forgets the sequence and drafts worse.
inline bool catch_up(llama_context * ctx_dft, llama_seq_id seq) {
    const auto found = reading_lags().find(seq);
    if (found == reading_lags().end()) {
        return false;
    }
    const reading_lag lag = std::move(found->second);
    reading_lags().erase(found);
    if (lag.tokens.empty() || ctx_dft == nullptr) {
        return false;
    }
    llama_memory_t memory = llama_get_memory(ctx_dft);
    bool read = llama_memory_seq_pos_max(memory, seq) + 1 == lag.start;
    const int n = (int) lag.tokens.size(), n_batch = (int) llama_n_batch(ctx_dft);
    for (int from = 0; read && from < n; from += n_batch) {
        const int count = std::min(n_batch, n - from);
        llama_batch batch = llama_batch_init(count, 0, 1);
        for (int i = 0; i < count; ++i) {
            batch.token[i] = lag.tokens[from + i];
            batch.pos[i] = lag.start + from + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = seq;
            batch.logits[i] = false;
        }
        batch.n_tokens = count;
        read = llama_decode(ctx_dft, batch) == 0;
        llama_batch_free(batch);
    }
    if (!read) {
        llama_memory_seq_rm(memory, seq, -1, -1);
    }
    return true;
}

namespace detail {

template <class Slot> auto drafter_of(const Slot & slot, int) -> decltype(slot.ctx_dft) { return slot.ctx_dft; }
template <class Slot> llama_context * drafter_of(const Slot &, long) { return nullptr; }

} // namespace detail

// Before each round of a slot. True if the drafter had to catch up, which took a while.
template <class Slot> bool reads_now(const Slot & slot, bool drafts) {
    if (!drafts) {
        reading_lags()[slot.id].idle = true;
        return false;
    }
    return catch_up(detail::drafter_of(slot, 0), slot.id);
}

// When a slot is released: its cache is saved, trimmed and reused with nothing missing.
template <class Slot> void read_rest(const Slot & slot) { catch_up(detail::drafter_of(slot, 0), slot.id); }

} // namespace ospec
