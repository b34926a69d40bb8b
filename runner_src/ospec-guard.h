// Questions only common/sampling.cpp can answer: struct common_sampler is private to it.
#pragma once

#include "sampling.h"

namespace ospec {

// Whether grammar, reasoning budget and logit bias would let `token` through at this position.
// Accepting a token the grammar forbids throws (or aborts, for an end token), so ask first.
bool token_allowed(common_sampler * smpl, llama_token token);

} // namespace ospec
