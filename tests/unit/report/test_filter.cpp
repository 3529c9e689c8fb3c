// Patterns of --filter: syntax and matching.
#include "report/summary/filter.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

/// Two sites: Python's step (device) and a native one (managed); and what outlived a scope.
Report two_sites() {
    Report report;
    report.modules = {{"", ""}, {"/opt/lib/libkernels.so.1", ""}};
    report.python_frames = {{"", "", 0}, {"Trainer.step", "/opt/app/train.py", 7}};
    report.frames = {{0, 0, 0}, {0, 0, 1}, {1, 0x10, 0}};
    report.stacks = {{}, {{2, 1}, false}, {{2}, false}};
    report.sites.resize(3);
    report.sites[0].stack = 1;
    report.sites[0].kind = "device";
    report.sites[1].stack = 2;
    report.sites[1].kind = "managed";
    report.sites[2].kind = "pinned";
    report.scopes.resize(2);
    report.scopes[0].name = "train";
    report.scopes[1].name = "forward";
    report.scopes[1].parent = 0;
    report.scopes[1].escaped.sites = {{1, 1, 100}};
    return report;
}

std::vector<bool> taken(const std::vector<std::string>& patterns) {
    const Report report = two_sites();
    Resolver resolver(report, nullptr);
    Filter filter;
    for (const std::string& pattern : patterns) {
        CHECK(filter.add(pattern).empty());
    }
    return filter.sites(report, resolver);
}

using Taken = std::vector<bool>;

}  // namespace

TEST_CASE("without a pattern every site is taken") {
    CHECK(taken({}) == Taken{true, true, true});
}

TEST_CASE("a text is looked for in functions, files and modules") {
    CHECK(taken({"step"}) == Taken{true, false, false});
    CHECK(taken({"train.py"}) == Taken{true, false, false});
    CHECK(taken({"kernels"}) == Taken{true, true, false});
    CHECK(taken({"nothing like it"}) == Taken{false, false, false});
    CHECK(taken({"func=train.py"}) == Taken{false, false, false});
    CHECK(taken({"file=train.py"}) == Taken{true, false, false});
    CHECK(taken({"module=libkernels"}) == Taken{true, true, false});
}

TEST_CASE("nn.Modules are refused where figures are not known by them") {
    Filter filter;
    CHECK(filter.add("nn_module=encoder").empty());
    CHECK(filter.by_nn_module());
    Filter without;
    without.without_nn_modules();
    CHECK(!without.add("nn_module=encoder").empty());
    CHECK(!filter.add("nn_module=").empty());
}

TEST_CASE("a pattern is for the whole name or its last part") {
    CHECK(taken({"func=*step"}) == Taken{true, false, false});
    CHECK(taken({"func=step*"}) == Taken{false, false, false});
    CHECK(taken({"module=libk*.so.?"}) == Taken{true, true, false});
    CHECK(taken({"module=/opt/*"}) == Taken{true, true, false});
}

TEST_CASE("kinds, and what outlived a scope") {
    CHECK(taken({"kind=managed"}) == Taken{false, true, false});
    CHECK(taken({"kind=pinned"}) == Taken{false, false, true});
    CHECK(taken({"scope=train/forward"}) == Taken{false, true, false});
    CHECK(taken({"scope=forward"}) == Taken{false, true, false});
    CHECK(taken({"scope=backward"}) == Taken{false, false, false});
}

TEST_CASE("several patterns must all match") {
    CHECK(taken({"kernels", "kind=device"}) == Taken{true, false, false});
    CHECK(taken({"kernels", "scope=train/*", "kind=device"}) == Taken{false, false, false});
    Filter filter;
    CHECK(filter.add("kernels").empty());
    CHECK(filter.add("kind=device").empty());
    CHECK(filter.text() == "kernels, kind=device");
}

TEST_CASE("what is no pattern is refused in one line") {
    Filter filter;
    CHECK(filter.add("").find("takes a text to look for") == 0);
    CHECK(filter.add("func=") == "takes a text to look for, not func=");
    CHECK(
        filter.add("function=step") ==
        "takes func=, file=, module=, scope=, kind= or nn_module=, not function=; for a name with "
        "= in it write func=function=step");
    CHECK(filter.empty());
    CHECK(filter.add("Matrix::operator==").empty());  // no key has capitals or colons
}
