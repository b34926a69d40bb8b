// Prometheus counters of the whole process, added to the server's /metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ospec {

void count_round(size_t n_drafted, size_t n_accepted);
void count_relaxed(float regret);
void count_skipped();

std::string metrics_text();

} // namespace ospec
