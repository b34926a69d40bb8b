// The target and its drafter take turns on the same CPU threads.
#pragma once

#include "ggml-cpu.h"
#include "llama.h"

namespace ospec {

// From b10435 on the server gives the target's context a pool of threads that keep spinning for a
// while after each batch. The drafter's context had none: each of its batches started threads anew,
// and they waited for a core held by the target's spinning ones. On 2 cores, SmolLM2 with a Q2_K
// drafter, that took 130 of a round's 340 ms.
struct thread_pools {
    ggml_threadpool_t steps = nullptr, batches = nullptr;
    int n_steps = 0, n_batches = 0;
};

inline thread_pools & target_threads() {
    static thread_pools instance;
    return instance;
}

template <class Params>
void keep_threads(ggml_threadpool_t steps, ggml_threadpool_t batches, const Params & params) {
    target_threads() = { steps, batches, params.cpuparams.n_threads, params.cpuparams_batch.n_threads };
}

// A pool only serves a context that asks for no more threads than it has.
inline void share_threads(llama_context * ctx_dft) {
    const thread_pools & pools = target_threads();
    if (ctx_dft && pools.steps && llama_n_threads(ctx_dft) <= pools.n_steps &&
        llama_n_threads_batch(ctx_dft) <= pools.n_batches) {
        llama_attach_threadpool(ctx_dft, pools.steps, pools.batches);
    }
}

} // namespace ospec
