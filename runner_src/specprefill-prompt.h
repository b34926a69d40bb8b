// Finds in a tokenised prompt what a sparse prefill must keep, and whether positions may have gaps.
#pragma once

#include "select.h"

#include "llama.h"

#include <vector>

namespace ospec {

// Control tokens; the static head up to the first user turn; the start of the last user turn. Turns
// are found by the role's name right after a control token, as chat templates write it. A prompt
// without such marks has neither head nor turn.
forced_spans forced_of(const llama_vocab * vocab, const std::vector<llama_token> & tokens);

// Whether two models number the same tokens alike.
bool same_vocab(const llama_vocab * a, const llama_vocab * b);

// Lets batches skip positions; false where this libllama does not have our two edits.
bool allow_position_gaps(bool allow);

// Decodes two tokens with a gap between them in an empty context and clears it again.
bool context_takes_gaps(llama_context * ctx);

} // namespace ospec
