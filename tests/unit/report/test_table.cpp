// Tables of a page: alignment, fitted and spare columns, headings of several lines, colours.
#include <optional>
#include <string>
#include <vector>

#include "report/text/table.hpp"
#include "tests/catch.hpp"

using namespace memlab::report;

namespace {

struct Fruit {
    std::string name;
    std::uint64_t bytes = 0;
    std::optional<std::uint64_t> count;
};

Page page_of(int width, bool color = false) {
    return Page(Style{.width = width, .ascii = true, .color = color});
}

}  // namespace

TEST_CASE("a heading and its cells share the width of their column") {
    Page page = page_of(80);
    memlab::report::Table<Fruit> table(page);
    table.left("fruit", 8, &Fruit::name)
        .bytes("bytes", &Fruit::bytes)
        .share(&Fruit::bytes, 4096)
        .count("count", &Fruit::count)
        .last("where");
    table.head();
    table.row({"plum", 1024, 1'234}, "in a tree");
    table.row({"fig", 2048, std::nullopt});
    CHECK(table.last_column() == 2 + 8 + 12 + 8 + 8 + 2);
    CHECK(page.take() ==
          "  fruit          bytes   share   count  where\n"
          "  plum        1.00 KiB   25.0%   1,234  in a tree\n"
          "  fig         2.00 KiB   50.0%\n");
}

TEST_CASE("rows() gives how many are left, begin() what is before the last column") {
    Page page = page_of(80);
    memlab::report::Table<Fruit> table(page, 0);
    table.number("", 3, &Fruit::bytes).left("", 6, &Fruit::name).last("", &Fruit::name);
    const std::vector<Fruit> all = {{"plum", 1, {}}, {"fig", 2, {}}, {"pear", 3, {}}};
    CHECK(table.rows(all, 2) == 1);
    CHECK(page.take() == "  1  plum    plum\n  2  fig     fig\n");
    CHECK(table.rows(all, 5) == 0);
    CHECK(table.begin(all[0]) == "  1  plum    ");
    page.take();
    table.only_last("x");
    CHECK(page.take() == std::string(13, ' ') + "x\n");
}

TEST_CASE("fit() takes the widest cell, leaves out spare columns, then narrows the first") {
    const std::vector<Fruit> all = {{"a plum of some size", 1024, 7}, {"fig", 1, 1'000'000}};
    const auto text = [&all](int width) {
        Page page = page_of(width);
        memlab::report::Table<Fruit> table(page, 0);
        table.left("", Column::fitted, &Fruit::name)
            .bytes("bytes", Column::fitted, &Fruit::bytes)
            .right(
                "count", Column::fitted,
                [](const Fruit& fruit) { return format_count(*fruit.count); }, 1);
        table.fit(all, 6);
        table.head();
        table.rows(all, all.size());
        return page.take();
    };
    CHECK(text(80) ==
          "                        bytes      count\n"
          "a plum of some size  1.00 KiB          7\n"
          "fig                       1 B  1,000,000\n");
    CHECK(text(30) ==
          "                        bytes\n"
          "a plum of some size  1.00 KiB\n"
          "fig                       1 B\n");
    CHECK(text(20) ==
          "               bytes\n"
          "a plum ...  1.00 KiB\n"
          "fig              1 B\n");
}

TEST_CASE("a heading may have several lines; a widened column leaves room for the last") {
    Page page = page_of(40);
    memlab::report::Table<Fruit> table(page, 0);
    table.right("bytes\npeak", 8, [](const Fruit&) { return "x"; })
        .left("name", 5, &Fruit::name)
        .last("end");
    table.widen(1, 10);
    CHECK(table.width_of(1) == 40 - 10 - 8 - 2 - 2);
    table.head();
    CHECK(page.take() == "   bytes  name                end\n    peak\n");
}

TEST_CASE("a cell's colour is not part of its width") {
    Page page = page_of(80, true);
    memlab::report::Table<Fruit> table(page, 0);
    table.left("", 6, &Fruit::name)
        .bold([](const Fruit& fruit) { return fruit.bytes > 1; })
        .number("", 4, &Fruit::bytes);
    CHECK(table.line({"fig", 1, {}}) == "fig      1");
    CHECK(table.line({"fig", 2, {}}) == "\x1b[1mfig\x1b[0m      2");
    table.last("");
    table.head();  // nothing to be dim
    CHECK(page.take() == "\n");
    CHECK(table.line({"fig", 1, {}}) == "fig      1");
}
