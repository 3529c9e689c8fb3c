// A line on the terminal that says how much of a file has been read, when that takes long, and is
// gone when it is over: the file is read, something failed, or a signal ended the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace memlab::report {

/// `line`, at most `width` columns: the file's name without its folder, a bar, per cent. `done` may
/// pass `total`, which is not 0.
std::string progress_line(std::string_view path, std::uint64_t done, std::uint64_t total, int width,
                          bool ascii);

/// Thread-safety: none.
class Progress {
  public:
    using Clock = std::chrono::steady_clock;

    /// Of `total` bytes of `path`, on `terminal`, from `patience` after `begin` on. Nothing is
    /// shown where the terminal is -1 or nothing is to be read.
    Progress(int terminal, std::string path, std::uint64_t total, Clock::time_point begin,
             Clock::duration patience);
    /// Wipes the line.
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// So far, at this moment; cheap. The line follows ten times a second at most.
    void look(std::uint64_t done, Clock::time_point now) {
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

/// Where readings of this thread that take long are shown from now on; -1, as it is in the
/// beginning: nowhere. One thread alone may have a terminal.
void show_progress_on(int terminal);
int progress_terminal();

/// Standard error, where that is a terminal that can wipe a line and nobody else draws on it:
/// standard output is no pipe, behind which a pager may be; else -1.
int terminal_for_progress();

}  // namespace memlab::report
