// What dropping tokens does to the target's next token: for the tool and the benchmark.
#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

namespace ospec {

struct comparison {
    double dense_ms = 0, original_ms = 0, compact_ms = 0; // prefill times
    double kl_original = 0, kl_compact = 0;               // KL(dense || sparse), nats
    bool   same_original = false, same_compact = false;   // the most probable token is the dense one
};

// Prefills `tokens` three times: all, kept at their own positions, kept at positions without gaps.
// Throws std::runtime_error when the model refuses.
comparison compare(llama_model * target, const std::vector<llama_token> & tokens, const std::vector<uint8_t> & kept,
                   int n_threads);

// Milliseconds of a plain prefill of `tokens`, in a context of its own. Throws like `compare`.
double prefill_ms(llama_model * model, const std::vector<llama_token> & tokens, int n_threads);

} // namespace ospec
