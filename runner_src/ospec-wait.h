// How long a request waits for its next result before it looks whether its client is still there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ospec {

// llama-server looks once a second, and every result of any other request starts that second anew,
// so a busy neighbour kept an abandoned request running. The deadline here outlives such wake-ups:
// one thread serves one request at a time, so it can belong to the thread.
inline std::cv_status wait_for_result(std::condition_variable & results, std::unique_lock<std::mutex> & lock) {
    using clock = std::chrono::steady_clock;
    static thread_local clock::time_point deadline;
    const clock::time_point now = clock::now();
    if (deadline + std::chrono::milliseconds(200) < now) {
        deadline = now + std::chrono::milliseconds(200); // the last wait is long over
    }
    const std::cv_status status = results.wait_until(lock, deadline);
    if (status == std::cv_status::timeout) {
        deadline = clock::time_point();
    }
    return status;
}

} // namespace ospec
