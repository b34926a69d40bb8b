// The drafter's memory after drafting: what it read of its own draft need not be read again.
#pragma once

#include "common.h"
#include "llama.h"
#include "ospec-lag.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ospec {

// Upstream forgets a draft at once and has the drafter read the whole verification batch, mostly the
// same tokens (TAG_SPEC_AVOID_DRAFT_REEVAL). A plain draft model, which reads nothing but tokens, may
// keep them: then at most the last drafted token is left to read. With SmolLM2 Q2_K on 2 cores that
// saves 20 ms of a round of 4 drafted tokens.
struct drafted_run {
    llama_pos    start = 0;  // position of the first token
    llama_tokens tokens;     // the target's last token and the draft that followed it
};

inline std::map<llama_seq_id, drafted_run> & drafted_runs() {
    static std::map<llama_seq_id, drafted_run> instance;
    return instance;
}

// Replaces the server's removal of the draft from the drafter's memory; `pos` is where it starts.
// Keeps it where reading it again would only repeat it, else removes it as before.
template <class Slot> bool forget_draft(const Slot & slot, bool reads_tokens_only, llama_context * ctx_dft, llama_pos pos) {
    auto & runs = drafted_runs();
    runs.erase(slot.id);
    // With images a position is no token count, and the drafter counts tokens.
    if (reads_tokens_only && slot.prompt.n_tokens() == pos) {
        drafted_run & run = runs[slot.id];
        run.start = pos;
        run.tokens.push_back(slot.sampled);
        run.tokens.insert(run.tokens.end(), slot.spec_draft.begin(), slot.spec_draft.end());
        return true;
    }
    return llama_memory_seq_rm(llama_get_memory(ctx_dft), slot.id, pos, -1);
}

// The part of a batch the drafter has not read yet. Owns what `left` points to.
class unread_batch {
  public:
    // Leaves out what drafting put into the memory of `ctx_dft`, and removes from that memory what the
    // batch does not confirm; and what the drafter may read later. A batch with neither comes out as
    // it went in.
    unread_batch(llama_context * ctx_dft, const llama_batch & batch) : left(batch) {
        auto & runs = drafted_runs();
        if (runs.empty() && reading_lags().empty()) {
            return;
        }
        llama_memory_t memory = llama_get_memory(ctx_dft);
        std::vector<bool> known(batch.n_tokens, false);
        std::map<llama_seq_id, llama_pos> end; // of what is confirmed, per sequence
        for (int i = 0; i < batch.n_tokens; ++i) {
            const llama_seq_id seq = batch.seq_id[i][0];
            const auto found = runs.find(seq);
            if (found == runs.end()) {
                known[i] = read_later(seq, batch.pos[i], batch.token[i]);
                if (!known[i]) {
                    catch_up(ctx_dft, seq);
                }
                continue;
            }
            const drafted_run & run = found->second;
            const llama_pos next = end.emplace(seq, batch.pos[i]).first->second;
            const llama_pos at = batch.pos[i] - run.start;
            known[i] = batch.pos[i] == next && at >= 0 && at < (llama_pos) run.tokens.size() &&
                       run.tokens[at] == batch.token[i] && batch.pos[i] <= llama_memory_seq_pos_max(memory, seq);
            end[seq] += known[i];
        }
        for (const auto & [seq, pos] : end) {
            llama_memory_seq_rm(memory, seq, pos, -1);
            runs.erase(seq);
        }
        for (int i = 0; i < batch.n_tokens; ++i) {
            if (!known[i]) {
                token.push_back(batch.token[i]);
                pos.push_back(batch.pos[i]);
                n_seq_id.push_back(batch.n_seq_id[i]);
                seq_id.push_back(batch.seq_id[i]);
            }
        }
        left.n_tokens = (int32_t) token.size();
        left.token = token.data();
        left.pos = pos.data();
        left.n_seq_id = n_seq_id.data();
        left.seq_id = seq_id.data();
    }

    llama_batch left;

  private:
    std::vector<llama_token>     token;
    std::vector<llama_pos>       pos;
    std::vector<int32_t>         n_seq_id;
    std::vector<llama_seq_id *>  seq_id;
};

} // namespace ospec
