// Line tables made by hand; those of the standard library: test_line_table.py.
#include "profiler/python/line_table.hpp"

#include "tests/catch.hpp"

using namespace memlab::profiler::python;

TEST_CASE("3.10: a line table of pairs") {
    // Four bytes of code on the first line, six on none, ten two lines further, two one line
    // before.
    const unsigned char table[] = {4, 0, 6, 128, 10, 2, 2, 255};
    const auto line = [&table](std::ptrdiff_t offset) {
        return line_at(LineTable::pairs, table, 100, offset).line;
    };
    CHECK(line(-1) == 100);
    CHECK(line(0) == 100);
    CHECK(line(3) == 100);
    CHECK(line(4) == 0);
    CHECK(line(10) == 102);
    CHECK(line(20) == 101);
    CHECK(line(22) == 0);
    CHECK(line_at(LineTable::pairs, {table, 3}, 100, 4).line == 0);
    CHECK(line_at(LineTable::pairs, table, 100, 12).bytes == 6);
}

TEST_CASE("3.9: a line table of changes") {
    // The second line from byte 4 on, the first again from 10, from 300 on the fourth.
    const unsigned char table[] = {4, 1, 6, 255, 255, 0, 35, 3};
    const auto at = [&table](std::ptrdiff_t offset) {
        return line_at(LineTable::changes, table, 100, offset);
    };
    CHECK(at(-1).line == 100);
    CHECK(at(0).line == 100);
    CHECK(at(0).bytes == 2);
    CHECK(at(4).line == 101);
    CHECK(at(9).line == 101);
    CHECK(at(9).bytes == 4);
    CHECK(at(10).line == 100);
    CHECK(at(299).line == 100);
    CHECK(at(299).bytes == 8);
    CHECK(at(300).line == 103);
    CHECK(at(300000).line == 103);
    CHECK(line_at(LineTable::changes, {table, 3}, 100, 50).line == 101);
    CHECK(line_at(LineTable::changes, {}, 100, 50).line == 100);
}
