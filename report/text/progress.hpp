// A progress line on the terminal for files that take long to read. Cleared when the file is read,
// on errors, and when a signal ends the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace memlab::report {

/// The text of the line in at most `width` columns: base name, bar, per cent. `done` may exceed
/// `total`, which must not be 0.
std::string progress_line(std::string_view path, std::uint64_t done, std::uint64_t total, int width,
                          bool ascii);

/// Thread-safety: none.
class Progress {
  public:
    using Clock = std::chrono::steady_clock;

    /// Shows the progress of reading `total` bytes of `path` on `terminal`, starting `delay` after
    /// `begin`. Shows nothing if `terminal` is -1 or `total` is 0.
    Progress(int terminal, std::string path, std::uint64_t total, Clock::time_point begin,
             Clock::duration delay);
    /// Clears the line.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// `done` bytes were read by `now`. Cheap; redraws the line at most ten times a second.
    void update(std::uint64_t done, Clock::time_point now) {
        if (now >= next_) {
            show(done, now);
        }
    }

  private:
    void show(std::uint64_t done, Clock::time_point now);

    const int terminal_;
    const std::string path_;
    const std::uint64_t total_;
    Clock::time_point next_;
    bool shown_ = false;
    std::string line_;
};

/// Sets the terminal that shows the progress of this thread's reads; -1 (the default): none. Only
/// one thread may have a terminal.
void show_progress_on(int terminal);
int progress_terminal();

/// Standard error if it is a terminal that can clear a line and standard output is not a pipe (a
/// pager may draw on the terminal); else -1.
int terminal_for_progress();

}  // namespace memlab::report
