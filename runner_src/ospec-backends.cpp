#include "ospec-backends.h"

#include "ggml-backend.h"
#include "log.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

namespace ospec {

void report_backends() {
    std::error_code failed;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    if (failed) {
        return; // not on Linux
    }
    for (const char * name : { "CUDA", "Vulkan" }) {
        std::string file = std::string("libggml-") + name + ".so";
        std::transform(file.begin(), file.end(), file.begin(), [](unsigned char c) { return std::tolower(c); });
        const auto path = folder / file;
        // Loading it once more makes ggml say why it cannot.
        if (std::filesystem::exists(path, failed) && !ggml_backend_reg_by_name(name) &&
            !ggml_backend_load(path.c_str())) {
            LOG_WRN("%s cannot be used, so the model runs on the CPU: is the GPU's driver installed?\n", name);
        }
    }
}

} // namespace ospec
