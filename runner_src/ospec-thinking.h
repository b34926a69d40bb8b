// Whether the text generated so far ends inside a thinking block.
#pragma once

#include <string>

namespace ospec {

struct think_markers {
    std::string open  = "<think>";
    std::string close = "</think>";
};

// The pair of markers a chat template uses; the default pair where it names none we know.
think_markers markers_of(const std::string & chat_template);

class think_tracker {
  public:
    think_tracker() = default;
    explicit think_tracker(think_markers markers) : markers(std::move(markers)) {}

    // Takes the text of the next token. A marker may be split over several tokens.
    void feed(const std::string & piece);
    bool inside() const { return thinking; }

  private:
    think_markers markers;
    std::string   tail; // just enough text to find a marker in
    bool          thinking = false;
};

} // namespace ospec
