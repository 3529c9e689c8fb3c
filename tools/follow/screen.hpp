// A text that is shown in place on a terminal, with colours as views have them, and is replaced
// again and again. It can be scrolled; the terminal is left as it was, whichever way this ends.
#pragma once

#include <termios.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

/// At most one. Thread-safety: none.
class FollowScreen {
  public:
    using Clock = std::chrono::steady_clock;
    enum class Event : std::uint8_t {
        time,   ///< it is over
        size,   ///< of the window: lay it out again
        ended,  ///< q, Ctrl-C, SIGTERM, or the terminal is gone
    };

    /// Whether standard output is a terminal that can be drawn on.
    static bool is_possible();

    /// `ascii`: only such characters in what it adds.
    explicit FollowScreen(bool ascii);
    ~FollowScreen();
    FollowScreen(const FollowScreen&) = delete;
    FollowScreen& operator=(const FollowScreen&) = delete;

    /// Shows the text from where it was scrolled to, and a line at the bottom.
    void show(std::string_view text, const std::string& bottom);
    Event wait(Clock::time_point until);

  private:
    void enter();
    void leave();
    void draw();
    bool take_keys();
    void scroll(long lines);
    void measure();

    const bool ascii_;
    bool has_keys_ = false;
    termios before_{};
    sigset_t mask_before_{};
    int signals_ = -1;
    std::size_t rows_ = 24;
    std::size_t columns_ = 80;
    std::vector<std::string> lines_;
    std::string bottom_;
    std::size_t first_ = 0;  ///< line at the top
    std::string keys_;       ///< of a sequence that is not complete
};

/// At most `columns` of a line, with its colours: they are ended where it is cut.
std::string cut_to_columns(std::string_view line, std::size_t columns);

}  // namespace memlab::tools
