// Sparse prefill of one server process: the speculator, who may use it now, what prefill costs here.
// Nothing in this file knows the server's types; prefill-hooks.h does.
#pragma once

#include "score.h"
#include "select.h"
#include "specprefill-options.h"
#include "specprefill-prompt.h"
#include "specprefill-types.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ospec {

// State of one server slot. `kept` speaks of the prompt of `task`; the server's own token list stays
// complete, only the cache has holes.
struct prefill_slot {
    enum class phase { idle, waiting, scoring, ready };
    int   task = -1;
    phase at   = phase::idle;
    bool  holes   = false;              // the target's cache misses tokens of this prompt
    bool  compact = false;              // the prompt is shortened instead, to what is kept
    int   n_shared = 0;                 // tokens taken over from the frozen turn
    std::vector<llama_token> prompt;
    std::vector<uint8_t>     kept;      // empty: dense
    prefill_figures figures;
    prefill_request request;

    // What a finished sparse turn left in the cache, hidden from the server's own reuse.
    struct {
        std::vector<llama_token> tokens;
        std::vector<uint8_t>     kept;
        int first_hole = -1;
        int last_hole  = -1;
        int pos_max    = -1;
    } frozen;

    void finish(const char * status) {
        figures.status = status;
        at = phase::ready;
    }
};

class prefill_engine {
  public:
    // Never throws and never stops a load; problems become statuses.
    void load(llama_model * target, llama_context * ctx, llama_model * draft, int n_threads, bool can_freeze);
    void unload();
    void refuse(const std::string & why); // every prompt from now on: skipped_error

    bool set_up() const { return loaded; }
    bool freezes() const { return can_freeze; }
    // Status to skip with, or nullptr. `n_new`: prompt tokens not in the cache.
    const char * refusal(const prefill_slot & slot, int n_new) const;
    std::string reason(const std::string & status) const { return status == "skipped_error" ? problem : ""; }
    // One micro-batch of work for the slot; true: decided, see `kept` and `figures.status`.
    bool step(prefill_slot & slot, int slot_id, bool alone);
    void abandon(int slot_id);
    void observe(const prefill_figures & figures, double n_tokens, double ms);

  private:
    bool        loaded = false, can_freeze = false;
    std::string problem;              // why scoring cannot work here
    const char * problem_status = nullptr;
    bool        gaps = false;         // kept tokens stay at their own positions
    const llama_vocab * vocab = nullptr;
    std::unique_ptr<llama_model, decltype(&llama_model_free)> own{ nullptr, llama_model_free };
    llama_model * speculator = nullptr;
    std::unique_ptr<scorer> score;
    int owner = -1;                   // slot that is being scored

    mutable std::mutex mutex;         // rates are told by HTTP threads
    double target_ms = 0, speculator_ms = 0, query_ms = 0; // per token, per token, per prompt; 0: unknown
    int    last_seen = -1;

    void choose(prefill_slot & slot);
    float predicted_gain(int n_prompt, int n_new, float keep) const;
};

prefill_engine & prefill();

} // namespace ospec
