// How much the question looks at each prompt token, by the attention of a small model (the
// speculator). Speculative Prefill, arXiv 2502.02789: the whole prompt once, then the last prompt
// token and a few look-ahead tokens as queries.
//
// The long pass runs with flash attention and without any callback. During the look-ahead the query
// vectors are copied (a few KB a layer); attention over the prompt is then computed beside the graph
// from these and the keys in the cache. Memory: the cache, 2 * n_layer * n_embd_gqa * 2 bytes a
// token, and n_prompt * queries * group floats for one KV head at a time.
#pragma once

#include "llama.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ospec {

struct score_options {
    int  n_threads = 2;
    int  n_ubatch  = 512;  // tokens of one step of the long pass
    int  lookahead = 8;    // generated tokens that act as queries after the last prompt token
    int  pool      = 13;   // width of the average along the prompt; odd
    int  n_sink    = 4;    // first tokens, which draw attention whatever is asked: not ranked
    bool flash     = true; // false: read the attention matrix itself, for models without flash attention
};

struct score_result {
    std::vector<float> scores;  // one per prompt token, >= 0
    int    n_evaluated = 0;     // prompt tokens this call ran through the speculator
    int    n_queries   = 0;
    int    n_layers    = 0;     // full-attention layers read
    double prompt_ms   = 0;
    double query_ms    = 0;     // look-ahead and reading
};

// One prompt at a time, in steps the caller paces. Every function throws std::runtime_error with a
// reason; the next begin() starts clean.
class scorer {
  public:
    scorer(llama_model * model, const score_options & options);
    ~scorer();
    scorer(const scorer &) = delete;
    scorer & operator=(const scorer &) = delete;

    // Keeps the cache of the prefix shared with the prompt before. `lookahead` < 0: as in the options.
    void begin(std::vector<llama_token> prompt, int lookahead = -1);
    // Runs at most one micro-batch of at most `max_tokens`; true: finished, the result is there.
    bool advance(int max_tokens);
    void cancel();

    const score_result & result() const;
    size_t cache_bytes() const; // keys and values of the prompt; 0 before the first one

  private:
    struct state;
    std::unique_ptr<state> s;
};

} // namespace ospec
