// The progress line: its text, when it is shown, and that it is cleared.
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "report/text/progress.hpp"
#include "report/text/terminal.hpp"
#include "tests/catch.hpp"

using memlab::report::Progress;
using memlab::report::progress_line;
using namespace std::chrono_literals;

namespace {

/// A fake terminal; drawn() returns the output since the last call.
class Screen {
  public:
    Screen() { REQUIRE(pipe(ends_.data()) == 0); }
    ~Screen() {
        close(ends_[0]);
        close(ends_[1]);
    }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    int terminal() const { return ends_[1]; }

    std::string drawn() const {
        int waiting = 0;
        REQUIRE(ioctl(ends_[0], FIONREAD, &waiting) == 0);
        std::string text(static_cast<std::size_t>(waiting), '\0');
        if (waiting > 0) {
            REQUIRE(read(ends_[0], text.data(), text.size()) == waiting);
        }
        return text;
    }

  private:
    std::array<int, 2> ends_{};
};

constexpr Progress::Clock::time_point begin{1000s};

}  // namespace

TEST_CASE("a progress line names the file, draws the share and fits the width") {
    CHECK(progress_line("/a/b/memlab.train.1.memlog", 45, 100, 70, true) ==
          "Reading memlab.train.1.memlog ###############....................  45%");
    CHECK(progress_line("x", 0, 100, 70, true) ==
          "Reading x ........................................   0%");
    CHECK(progress_line("x", 100, 100, 40, true) == "Reading x ######################### 100%");
    CHECK(progress_line("x", 50, 100, 40, false) == "Reading x ████████████░░░░░░░░░░░░░  50%");
    CHECK(progress_line("a.file.with.a.very.long.name", 1, 2, 40, true) ==
          "Reading ...ery.long.name #####.....  50%");
    // A log that grows while it is read, and sizes that a double cannot represent.
    CHECK(progress_line("x", 150, 100, 40, true) == "Reading x ######################### 100%");
    CHECK(progress_line("x", ~0ULL - 1, ~0ULL, 40, true).ends_with(" 100%"));
    CHECK(progress_line("bad\x1b[2Jname", 1, 100, 40, true).find('\x1b') == std::string::npos);
    for (const int width : {1, 20, 39, 40, 79, 119}) {
        const std::string name(200, 'n');
        INFO(width);
        CHECK(memlab::report::display_width(progress_line(name, 1, 2, width, false)) <=
              static_cast<std::size_t>(std::max(width, 16)));
    }
}

TEST_CASE("nothing is shown of what takes less than it has time for") {
    const Screen screen;
    {
        Progress progress(screen.terminal(), "log", 100, begin, 1s);
        progress.update(10, begin);
        progress.update(99, begin + 999ms);
    }
    CHECK(screen.drawn().empty());
}

TEST_CASE("the line comes after a second, follows, and is wiped") {
    setenv("COLUMNS", "60", 1);
    setenv("LC_ALL", "C", 1);
    const Screen screen;
    {
        Progress progress(screen.terminal(), "log", 1000, begin, 1s);
        progress.update(100, begin + 1s);
        CHECK(screen.drawn() == "\r\x1b[K" + progress_line("log", 100, 1000, 59, true));
        progress.update(200, begin + 1s + 99ms);
        CHECK(screen.drawn().empty());  // ten times a second at most
        progress.update(300, begin + 1s + 100ms);
        CHECK(screen.drawn() == "\r\x1b[K" + progress_line("log", 300, 1000, 59, true));
        progress.update(301, begin + 2s);
        CHECK(screen.drawn().empty());  // it would look the same
        progress.update(1000, begin + 3s);
        CHECK(screen.drawn() == "\r\x1b[K" + progress_line("log", 1000, 1000, 59, true));
    }
    CHECK(screen.drawn() == "\r\x1b[K");
    unsetenv("COLUMNS");
    unsetenv("LC_ALL");
}

TEST_CASE("nothing is shown without a terminal or a size") {
    const Screen screen;
    {
        Progress nowhere(-1, "log", 100, begin, 1s);
        nowhere.update(50, begin + 10s);
        Progress no_size(screen.terminal(), "pipe", 0, begin, 1s);
        no_size.update(50, begin + 10s);
    }
    CHECK(screen.drawn().empty());
}
