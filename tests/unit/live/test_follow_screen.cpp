// What is shown in place on a terminal.
#include "tests/catch.hpp"
#include "tools/follow/screen.hpp"

using namespace memlab::tools;

TEST_CASE("a line is cut to columns, not to bytes, and its colours end with it") {
    CHECK(cut_to_columns("allocated", 20) == "allocated");
    CHECK(cut_to_columns("allocated", 5) == "alloc");
    CHECK(cut_to_columns("", 5).empty());
    CHECK(cut_to_columns("abc", 0).empty());
    CHECK(cut_to_columns("█░⚠ x", 3) == "█░⚠");
    CHECK(cut_to_columns("\x1b[1mbold\x1b[0m rest", 4) == "\x1b[1mbold\x1b[0m\x1b[0m");
    CHECK(cut_to_columns("\x1b[1mbold\x1b[0m rest", 2) == "\x1b[1mbo\x1b[0m");
    CHECK(cut_to_columns("\x1b[1mbold\x1b[0m rest", 6) == "\x1b[1mbold\x1b[0m r\x1b[0m");
}

TEST_CASE("what is no whole sequence or character does no harm") {
    CHECK(cut_to_columns("\x1b", 5) == "\x1b");
    CHECK(cut_to_columns("\x1b[3", 5) == "\x1b[3\x1b[0m");
    CHECK(cut_to_columns("\xe2\x96", 5) == "\xe2\x96");
    CHECK(cut_to_columns("\x80\x80", 1) == "\x80\x80");
}
