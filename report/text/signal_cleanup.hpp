// Cleanup on SIGINT, SIGTERM and SIGHUP: removes an unfinished output file, clears the progress
// line on the terminal, then ends the process by the same signal, so that the shell sees how it
// ended. Signals that are ignored (nohup) stay ignored.
#pragma once

#include <csignal>

namespace memlab::report {

/// Sets the file to remove when a signal ends the process; null: none. One file at a time; `path`
/// must stay valid. Thread-safety: none.
void remove_file_on_signal(const char* path);

/// Sets the terminal whose current line is cleared when a signal ends the process; -1: none.
void clear_line_on_signal(int terminal);

/// Blocks the ending signals, or all signals, in this thread during its lifetime. Threads started
/// meanwhile inherit the mask: `all` keeps signals away from them.
class SignalBlocker {
  public:
    enum class Which { ending, all };
    explicit SignalBlocker(Which which = Which::ending);
    ~SignalBlocker();
    SignalBlocker(const SignalBlocker&) = delete;
    SignalBlocker& operator=(const SignalBlocker&) = delete;

  private:
    sigset_t previous_{};
};

/// Moves to the start of the line and erases it.
inline constexpr char clear_line[] = "\r\x1b[K";

}  // namespace memlab::report
