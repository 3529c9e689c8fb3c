// Terminal output contains no escape sequences of a recording, and fits the width.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "report/text/terminal.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

class Environment {
  public:
    Environment() {
        for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "COLUMNS", "TERM"}) {
            unsetenv(name);
        }
    }
    Environment& set(const char* name, const char* value) {
        setenv(name, value, 1);
        return *this;
    }
};

}  // namespace

TEST_CASE("the first locale variable that is set decides on Unicode") {
    Environment environment;
    CHECK(style_for(1, ColorMode::automatic, false).ascii);
    environment.set("LANG", "de_DE.UTF-8");
    CHECK_FALSE(style_for(1, ColorMode::automatic, false).ascii);
    CHECK(style_for(1, ColorMode::automatic, true).ascii);
    environment.set("LC_CTYPE", "C.utf8");
    CHECK_FALSE(style_for(1, ColorMode::automatic, false).ascii);
    environment.set("LC_ALL", "C");
    CHECK(style_for(1, ColorMode::automatic, false).ascii);
    environment.set("LC_ALL", "");
    CHECK_FALSE(style_for(1, ColorMode::automatic, false).ascii);
}

TEST_CASE("a file gets no colour, pictures of 80 columns and whole lines, unless asked for") {
    Environment environment;
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK(style_for(fd, ColorMode::automatic, false).width == 80);
    CHECK(style_for(fd, ColorMode::automatic, false).line_columns() == unlimited_width);
    CHECK(style_for(fd, ColorMode::automatic, false, 90).width == 90);
    CHECK(style_for(fd, ColorMode::automatic, false, 90).line_columns() == 90);
    CHECK(style_for(fd, ColorMode::automatic, false, 200).width == 120);
    CHECK(style_for(fd, ColorMode::automatic, false, 200).line_columns() == 200);
    CHECK_FALSE(style_for(fd, ColorMode::automatic, false).color);
    CHECK(style_for(fd, ColorMode::always, false).color);
    environment.set("COLUMNS", "100");
    CHECK(style_for(fd, ColorMode::never, false).width == 100);
    CHECK(style_for(fd, ColorMode::never, false).line_columns() == 100);
    environment.set("COLUMNS", "7");
    CHECK(style_for(fd, ColorMode::never, false).width == 40);
    environment.set("COLUMNS", "99999999999999999999");
    CHECK(style_for(fd, ColorMode::never, false).width == 120);
    environment.set("COLUMNS", "wide");
    CHECK(style_for(fd, ColorMode::never, false).width == 80);
    close(fd);
}

TEST_CASE("text from a recording cannot command the terminal") {
    CHECK(printable("plain", false) == "plain");
    CHECK(printable("\x1b]0;title\a", false) == "?]0;title?");
    CHECK(printable("a\nb\tc\x7f", false) == "a?b?c?");
    CHECK(printable("\xc2\x9b"
                    "31m",
                    false) == "?31m");
    CHECK(printable("Zürich", false) == "Zürich");
    // What reverses the text beside it, and what ends a line.
    for (const char* const control : {"\u061c", "\u200e", "\u200f", "\u2028", "\u202a", "\u202e",
                                      "\u2066", "\u2069", "\u0085"}) {
        CHECK(printable(control, false) == "?");
    }
    CHECK(printable("\u200b\u2030\u206a", false) == "\u200b\u2030\u206a");
    CHECK(printable("Zürich", true) == "Z?rich");
    CHECK(printable("\xff\xc3", false) == "??");
    CHECK(printable("\xe2\x82", false) == "??");
}

TEST_CASE("shortened text fits exactly") {
    CHECK(shorten_end("abcdef", 6, false) == "abcdef");
    CHECK(shorten_end("abcdefg", 6, false) == "abcde…");
    CHECK(shorten_end("abcdefg", 6, true) == "abc...");
    CHECK(shorten_end("ääääääää", 4, false) == "äää…");
    CHECK(shorten_begin("/a/long/path.cpp", 9, false) == "…path.cpp");
    CHECK(shorten_begin("/a/long/path.cpp", 11, true) == "...path.cpp");
    CHECK(shorten_begin("ääääääää", 4, false) == "…äää");
    CHECK(display_width("\x1b[36mä█\x1b[0m") == 2);
}

TEST_CASE("text is broken between words") {
    CHECK(wrap("one two three", 7, "  ") == "one two\n  three");
    CHECK(wrap("unbreakable", 4, "") == "unbreakable");
    CHECK(wrap("", 10, "").empty());
    CHECK(wrap("less 56.84 GiB in use", 11, "") == "less\n56.84 GiB\nin use");
    CHECK(wrap("less 12 in use", 8, "") == "less 12\nin use");
    CHECK(wrap("(of 3 MiB).", 5, "") == "(of\n3 MiB).");
    CHECK(wrap("at 5 ", 5, "") == "at 5");
    CHECK(wrap("at 5  s", 4, "") == "at 5\ns");
}
