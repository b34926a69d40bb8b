// Questions only common/sampling.cpp can answer: struct common_sampler is private to it.
#pragma once

#include "sampling.h"

namespace ospec {

// Whether grammar, reasoning budget and logit bias would let `token` through at this position.
// Accepting a token the grammar forbids throws (or aborts, for an end token), so ask first.
bool token_allowed(common_sampler * smpl, llama_token token);

// Makes `to` continue the random numbers of its copy `from`, at tags whose sampler has any of its own.
void follow_random(common_sampler * to, const common_sampler * from);

} // namespace ospec
