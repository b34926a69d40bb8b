// Questions only common/speculative.cpp can answer: the drafters are private to it.
#pragma once

#include "speculative.h"

namespace ospec {

// Whether the sequence's last draft was copied from earlier text (an n-gram drafter) instead of
// being a model's guess.
bool drafted_by_lookup(common_speculative * spec, llama_seq_id seq_id);

// Whether the drafter is a plain model that reads the tokens and nothing of the target's.
bool reads_tokens_only(common_speculative * spec);

// Euclidean norm of the target's hidden row an MTP drafter started from; -1 for other drafters.
float hidden_norm(common_speculative * spec, llama_seq_id seq_id);

} // namespace ospec
