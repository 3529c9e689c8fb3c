#include "report/text/progress.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "report/text/names.hpp"
#include "report/text/signal_cleanup.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

namespace {

constexpr std::chrono::milliseconds redraw_interval{100};

thread_local int terminal_of_this_thread = -1;

/// Errors are ignored.
void put(int terminal, std::string_view text) {
    [[maybe_unused]] const ssize_t written = write(terminal, text.data(), text.size());
}

}  // namespace

std::string progress_line(std::string_view path, std::uint64_t done, std::uint64_t total, int width,
                          bool ascii) {
    constexpr std::string_view before = "Reading ";
    constexpr std::size_t per_cent = 5;  // " 100%"
    constexpr std::size_t max_bar = 40;
    constexpr std::size_t min_bar = 10;
    const auto columns = static_cast<std::size_t>(std::max(width, 1));
    const std::size_t around = before.size() + 1 + min_bar + per_cent;
    const std::string name = shorten_begin(printable(base_name(path), ascii),
                                           columns - std::min(columns, around), ascii);
    std::string line = std::string(before) + name + " ";
    const std::size_t taken = display_width(line) + per_cent;
    const std::size_t bar = std::min(columns - std::min(columns, taken), max_bar);
    const double share = std::min(static_cast<double>(done) / static_cast<double>(total), 1.0);
    const auto full = static_cast<std::size_t>(share * static_cast<double>(bar));
    for (std::size_t i = 0; i < bar; ++i) {
        line += i < full ? (ascii ? "#" : "█") : (ascii ? "." : "░");
    }
    std::string number = std::to_string(static_cast<int>(share * 100)) + "%";
    line.append(per_cent - number.size(), ' ');
    return line + number;
}

Progress::Progress(int terminal, std::string path, std::uint64_t total, Clock::time_point begin,
                   Clock::duration delay)
    : terminal_(terminal),
      path_(std::move(path)),
      total_(total),
      next_(terminal >= 0 && total > 0 ? begin + delay : Clock::time_point::max()) {}

Progress::~Progress() {
    if (shown_) {
        put(terminal_, clear_line);
        clear_line_on_signal(-1);
    }
}

void Progress::show(std::uint64_t done, Clock::time_point now) {
    next_ = now + redraw_interval;
    // The window may have been resized. The last column stays free, or some terminals would wrap.
    const Style style = style_for(terminal_, ColorMode::never, false);
    std::string line = progress_line(path_, done, total_, style.width - 1, style.ascii);
    if (line == line_) {
        return;
    }
    line_ = std::move(line);
    if (!shown_) {
        clear_line_on_signal(terminal_);
        shown_ = true;
    }
    put(terminal_, clear_line + line_);
}

void show_progress_on(int terminal) {
    terminal_of_this_thread = terminal;
}

int progress_terminal() {
    return terminal_of_this_thread;
}

int terminal_for_progress() {
    const char* term = std::getenv("TERM");
    if (isatty(STDERR_FILENO) == 0 || (term != nullptr && std::strcmp(term, "dumb") == 0)) {
        return -1;
    }
    struct stat output {};
    return fstat(STDOUT_FILENO, &output) == 0 && S_ISFIFO(output.st_mode) ? -1 : STDERR_FILENO;
}

}  // namespace memlab::report
