// Which prompt tokens the target model gets to see in a sparse prefill. Pure: no llama.cpp types.
// Method: Speculative Prefill (arXiv 2502.02789, section 3) with forced parts and anchors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ospec {

enum class keep_mode { keep, mass };

// Keep rate by prompt length; linear in between, constant outside.
struct keep_curve {
    std::vector<std::pair<int, float>> points; // tokens, share kept; sorted by tokens

    float at(int n_prompt) const;
    // "0.3" or "8192:.4,32768:.25"; throws std::invalid_argument.
    static keep_curve parse(const std::string & text);
};

struct select_options {
    int       chunk    = 32;     // tokens kept or dropped together
    keep_mode mode     = keep_mode::keep;
    float     keep     = 0.3f;   // share of the prompt kept (mode keep)
    float     mass     = 0.85f;  // share of the attention kept (mode mass)
    int       max_keep = 0;      // upper limit in tokens of what ranking may add; 0: none
    int       tail     = 0;      // last tokens, always kept; 0: 512, or `window` where that is more
    int       window   = 0;      // attention window of the target; 0: it has none
    bool      anchors  = true;   // keep what the question quotes
    int       gram     = 4;      // longest run of tokens that makes an anchor; the shortest is 2
    int       query    = 96;     // last tokens that count as the question, where it is not marked
    int       rare     = 4;      // an anchor occurs at most this often in the prompt
    int       near     = 16;     // tokens kept after an anchor (a third of it before), around a top chunk
};

// Windowed layers see nothing but the window: by default it is whole when generation begins.
inline int tail_of(const select_options & opt) { return opt.tail > 0 ? opt.tail : std::max(512, opt.window); }

// What must stay, found in the text of the prompt by the caller.
struct forced_spans {
    std::vector<uint8_t> tokens; // 1: keep this very token (control tokens, BOS)
    int prefix = 0;              // tokens of the static head (system prompt, tools)
    int turn   = -1;             // first token of the last user turn; -1: unknown
    int question = -1;           // first token of the prompt's last paragraph; -1: unknown
};

struct selection {
    std::vector<uint8_t> kept;   // per prompt token
    int   n_kept   = 0;
    float coverage = 0;          // share of the score mass that is kept
    float threshold = 0;         // mean score of the weakest chunk the ranking took
    bool  all() const { return n_kept == (int) kept.size(); }
};

// [first, last) runs of kept tokens.
std::vector<std::pair<int, int>> ranges(const std::vector<uint8_t> & kept);

// [first, last) around places that hold a rare n-gram of the question, most distinctive first.
std::vector<std::pair<int, int>> anchor_windows(const std::vector<int32_t> & tokens, int question, const select_options & opt);

// `scores`: one non-negative number per token. The forced part is never cut; the rest of the budget
// goes to whole chunks in order of their mean score, so a smaller budget is a higher threshold.
selection select_tokens(const std::vector<int32_t> & tokens, const std::vector<float> & scores,
                        const forced_spans & forced, const select_options & opt);

// Share of the score mass on kept tokens.
float coverage_of(const std::vector<float> & scores, const std::vector<uint8_t> & kept);

} // namespace ospec
