// Cleanup on SIGINT, SIGTERM and SIGHUP: removes an unfinished output file, clears the progress
// line on the terminal, then ends the process by the same signal, so that the shell sees how it
// ended. Signals that are ignored (nohup) stay ignored.
#pragma once

#include <csignal>
#include <cstddef>
#include <string>

namespace memlab::report {

/// During its lifetime a signal that ends the process removes the file first. At most four at a
/// time; more are left behind. Thread-safety: none.
class RemovedOnSignal {
  public:
    explicit RemovedOnSignal(std::string path);
    ~RemovedOnSignal();
    RemovedOnSignal(const RemovedOnSignal&) = delete;
    RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;

  private:
    const std::string path_;
    std::size_t place_;
};

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
