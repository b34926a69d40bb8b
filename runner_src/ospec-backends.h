// Tells why a GPU module that lies beside this program is not in use.
#pragma once

namespace ospec {

// ggml passes over a module that cannot be loaded without a word, and the model then runs on the CPU.
void report_backends();

} // namespace ospec
