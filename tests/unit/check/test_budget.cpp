// Budget files: TOML and JSON are equivalent, and nothing in them is ignored.
#include "report/check/budget.hpp"

#include "tests/catch.hpp"

using namespace memlab::report::check;

namespace {

constexpr const char* toml = R"(baseline = "base.json"

[limits]
peak_allocated = ["4 GiB", "+5%"]
leaks = 0
fragmentation = 0.25

[[site]]
match = "func=load_batch"
leaks = "1 MiB"

[[scope]]
name = "train/step"
growth = "512"
)";

constexpr const char* json = R"({"baseline": "base.json",
 "limits": {"peak_allocated": ["4 GiB", "+5%"], "leaks": 0, "fragmentation": 0.25},
 "site": [{"match": "func=load_batch", "leaks": "1 MiB"}],
 "scope": [{"name": "train/step", "growth": "512"}]})";

std::string error_of(const std::string& text) {
    const BudgetResult result = parse_budget(text, "ci.toml");
    REQUIRE_FALSE(result.budget);
    CHECK(result.error.find('\n') == std::string::npos);
    return result.error;
}

bool begins(const std::string& text, const std::string& with) {
    CAPTURE(text);
    return text.rfind(with, 0) == 0;
}

}  // namespace

TEST_CASE("TOML and JSON say the same") {
    const BudgetResult a = parse_budget(toml, "ci.toml");
    const BudgetResult b = parse_budget(json, "ci.json");
    CHECK(a.error.empty());
    CHECK(b.error.empty());
    REQUIRE(a.budget);
    REQUIRE(b.budget);
    CHECK(a.budget->baseline == "base.json");
    CHECK(b.budget->baseline == "base.json");
    REQUIRE(a.budget->limits.size() == 6);
    REQUIRE(b.budget->limits.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
        const Limit& x = a.budget->limits[i];
        const Limit& y = b.budget->limits[i];
        CHECK(x.metric == y.metric);
        CHECK(x.subject == y.subject);
        CHECK(x.bound.kind == y.bound.kind);
        CHECK(x.bound.amount == y.bound.amount);
    }
    const Limit& first = a.budget->limits.front();
    CHECK(first.metric == Metric::peak_allocated);
    CHECK(first.bound.amount == Figure::whole(4ULL << 30));
    CHECK(first.origin == "ci.toml:4");
    CHECK(b.budget->limits.front().origin == "ci.json:2");
    CHECK(a.budget->limits[3].bound.amount == Figure::real(0.25));
    CHECK(a.budget->limits[4].subject == Subject{Subject::Kind::site, "func=load_batch"});
    CHECK(a.budget->limits[5].subject == Subject{Subject::Kind::scope, "train/step"});
}

TEST_CASE("an unknown key is an error with its line and column") {
    CHECK(begins(error_of("[limits]\nleaks = 0\n  peak_alocated = 1\n"),
                 "ci.toml:3:3: unknown key \"peak_alocated\""));
    CHECK(begins(error_of("limit = 1\n"), "ci.toml:1:1: unknown key \"limit\""));
    CHECK(begins(error_of("{\"limits\": {\n  \"leaks\": 0,\n  \"a\\\"b\": 1}}"),
                 "ci.toml:3:3: unknown key"));
    CHECK(begins(error_of("[[site]]\nmatch = \"x\"\nleeks = 0\n"), "ci.toml:3:1: unknown key"));
}

TEST_CASE("what is no budget is refused where it is wrong") {
    CHECK(begins(error_of("[limits]\nleaks = \n"), "ci.toml:2:"));
    CHECK(begins(error_of("{\"limits\": {\"leaks\": 0,}}"), "ci.toml:1:24: is not valid JSON"));
    CHECK(begins(error_of("{"), "ci.toml:1:"));
    CHECK(begins(error_of("{\"limits\": {\"leaks\": 0, \"leaks\": 1}}"),
                 "ci.toml:1:25: has the key \"leaks\" twice"));
    CHECK(begins(error_of("[limits]\nleaks = -1\n"), "ci.toml:2:1: leaks takes a size"));
    CHECK(begins(error_of("[limits]\nleaks = true\n"), "ci.toml:2:1: leaks takes a limit"));
    CHECK(begins(error_of("[limits]\nleaks = []\n"), "ci.toml:2:1: leaks has no limit"));
    CHECK(begins(error_of("[limits]\nfragmentation = inf\n"), "ci.toml:2:1: fragmentation takes"));
    CHECK(begins(error_of("[limits]\nleaks = 2024-01-01\n"), "ci.toml:2:1: leaks takes"));
    CHECK(begins(error_of("limits = 3\n"), "ci.toml:1:10: limits is not a table"));
    CHECK(begins(error_of("[site]\nmatch = \"x\"\n"), "ci.toml:1:2: site is a list of tables"));
    CHECK(begins(error_of("[[site]]\nleaks = 0\n"), "ci.toml:1:1: [[site]] has no \"match\""));
    CHECK(begins(error_of("[[site]]\nmatch = \"\"\nleaks = 0\n"), "ci.toml:2:1: match takes text"));
    CHECK(begins(error_of("[[site]]\nmatch = \"colour=x\"\nleaks = 0\n"),
                 "ci.toml:2:1: match takes func=, file="));
    CHECK(begins(error_of("[[site]]\nmatch = \"x\"\n"), "ci.toml:2:1: [[site]] limits nothing"));
    CHECK(begins(error_of("[[site]]\nmatch = \"x\"\nooms = 0\n"),
                 "ci.toml:3:1: ooms is not measured by sites"));
    CHECK(begins(error_of("[[scope]]\nname = \"x\"\nbypass = 0\n"),
                 "ci.toml:3:1: bypass is not measured by scopes"));
    CHECK(begins(error_of("suppressions = []\n"), "ci.toml:1:1: suppressions takes text"));
    CHECK(begins(error_of("baseline = 3\n"), "ci.toml:1:1: baseline takes text"));
}

TEST_CASE("a file that nests without end is refused, not followed") {
    std::string dotted = "a";
    for (int i = 0; i < 100'000; ++i) {
        dotted += ".a";
    }
    CHECK(begins(error_of(dotted + " = 1\n"), "ci.toml:1:1: is nested too deeply"));
    std::string headers;
    for (int i = 0; i < 30; ++i) {
        headers += ".a";
    }
    CHECK(error_of("[a" + headers + "]\nb = 1\n").find("nested too deeply") != std::string::npos);
    CHECK(error_of("{\"a\": " + std::string(100'000, '[')).find("nested too deeply") !=
          std::string::npos);
    CHECK(begins(error_of("a = " + std::string(100'000, '[')), "ci.toml:1:"));
}

TEST_CASE("characters beyond ASCII stand in quotes and comments") {
    const BudgetResult result = parse_budget(
        "\xef\xbb\xbf# f\xc3\xbcr alle\n[[site]]\n"
        "match = \"gr\xc3\xb6\xc3\x9f\xee\x82\xbf\" # \xc3\xa4\nleaks = 0\n",
        "ci.toml");
    CHECK(result.error.empty());
    REQUIRE(result.budget);
    CHECK(result.budget->limits[0].subject.text == "gr\xc3\xb6\xc3\x9f\xee\x82\xbf");
    const std::string error = error_of("b\xcc\x9e\xdd\x94");
    CHECK(begins(error, "ci.toml:1:2: is not valid TOML"));
    CHECK(error.find('\xee') == std::string::npos);
    CHECK(begins(error_of("a = 1\"\xc3\xa4\n"), "ci.toml:1:"));
}

TEST_CASE("an empty budget is a budget without limits") {
    for (const char* text : {"", "# later\n", "{}", "[limits]\n"}) {
        const BudgetResult result = parse_budget(text, "ci.toml");
        REQUIRE(result.budget);
        CHECK(result.budget->limits.empty());
    }
}

TEST_CASE("a budget that is not there is an error") {
    CHECK(
        begins(read_budget("/nonexistent/ci.toml").error, "/nonexistent/ci.toml: cannot be read"));
    CHECK(begins(read_budget("/").error, "/: cannot be read"));
}
