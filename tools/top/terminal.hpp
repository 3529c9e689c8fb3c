// memlab-top's screen on a terminal, by ncurses: lines in, keys out. What is shown is made
// elsewhere. It leaves the terminal as it was, whichever way the program ends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/top/lines.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {

/// At most one. Thread-safety: none.
class Terminal {
  public:
    /// Nothing is changed where no terminal of this TERM is known; problem() says so.
    explicit Terminal(bool color);
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// Empty: it works.
    const std::string& problem() const { return problem_; }
    std::size_t rows() const;
    std::size_t columns() const;
    void show(const std::vector<Line>& lines);
    /// The next key that was pressed; none: no more for now. A change of the size is no key.
    std::optional<KeyPress> next_key();
    /// Writes the whole screen again: another program may have written onto it.
    void redraw();

  private:
    std::string problem_;
    void* screen_ = nullptr;
    bool color_ = false;
    std::string partial_;  ///< of a character of several bytes
};

}  // namespace memlab::tools
