#include "ospec-thinking.h"

#include <algorithm>

namespace ospec {

think_markers markers_of(const std::string & chat_template) {
    static const think_markers known[] = {
        { "<think>", "</think>" },
        { "[THINK]", "[/THINK]" },
        { "<|channel>thought", "<channel|>" },
        { "<|channel|>analysis", "<|end|>" },
        { "<seed:think>", "</seed:think>" },
        { "<thinking>", "</thinking>" },
    };
    for (const think_markers & pair : known) {
        if (chat_template.find(pair.close) != std::string::npos) {
            return pair;
        }
    }
    return {};
}

void think_tracker::feed(const std::string & piece) {
    tail += piece;
    const size_t open = tail.rfind(markers.open), close = tail.rfind(markers.close);
    if (open != std::string::npos && (close == std::string::npos || open > close)) {
        thinking = true;
    } else if (close != std::string::npos) {
        thinking = false;
    }
    const size_t keep = std::max(markers.open.size(), markers.close.size());
    if (tail.size() > keep) {
        tail.erase(0, tail.size() - keep);
    }
}

} // namespace ospec
