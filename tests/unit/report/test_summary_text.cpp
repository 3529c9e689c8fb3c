// The text of a summary on a narrow terminal. The recording is a real one; only the names of its
// places are set here, as the symbolizer finds them if PyTorch is installed.
#include <string>

#include "report/reading/reader.hpp"
#include "report/summary/summary.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

// The row of the largest place at the peak, whose place is `place`.
std::string row_of(const Place& place, int width) {
    const ReadResult read =
        read_report(std::string(MEMLAB_TEST_DATA) + "/h100/pytorch_without_its_cache.json");
    REQUIRE(read.report);
    Resolver resolver(*read.report, nullptr);
    Summary summary = summarize("train.json", *read.report, resolver);
    REQUIRE(summary.devices.size() == 1);
    auto& places = summary.devices[0].at_peak.places;
    REQUIRE_FALSE(places.empty());
    places[0].place = place;
    TextOptions options;
    options.style.width = width;
    const std::string text = render_text(summary, resolver, options);
    const std::size_t table = text.find("where\n", text.find("Who holds it"));
    REQUIRE(table != std::string::npos);
    const std::size_t begin = table + 6;
    return text.substr(begin, text.find('\n', begin) - begin);
}

bool shows(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "a place without source in a narrow terminal: its function, not the libraries around it") {
    Place place;
    place.recorded = true;
    place.function = "at::cuda::setWorkspaceForHandle";
    place.module = "/torch/lib/libtorch_cuda.so";
    place.through = "libc10_cuda.so";
    const std::string wide = row_of(place, 140);
    CHECK(shows(wide, "libtorch_cuda.so  at::cuda::setWorkspaceForHandle  via libc10_cuda.so"));
    const std::string narrow = row_of(place, 80);
    CHECK(shows(narrow, "at::cuda::setWorkspaceForHandle"));
    CHECK_FALSE(shows(narrow, "libc10_cuda.so"));
}

TEST_CASE("a place with source keeps its line in a narrow terminal") {
    Place place;
    place.recorded = true;
    place.function = "Trainer::a_step_with_quite_a_long_name_of_its_own";
    place.file = "/home/user/project/source/training/trainer.cpp";
    place.line = 1234;
    place.module = "/home/user/project/train";
    const std::string narrow = row_of(place, 80);
    CHECK(shows(narrow, "trainer.cpp:1234"));
    CHECK(shows(narrow, "of_its_own"));
}

TEST_CASE("scopes, names and the verdict on the steps are in the summary") {
    Report report;
    report.stacks.resize(1);
    report.sites.resize(2);
    Scope outer;
    outer.kind = "scope";
    outer.name = "train";
    outer.entries = 1;
    Scope inner = outer;
    inner.parent = 0;
    inner.name = "step #";
    inner.entries = 5000;
    inner.peak_growth_bytes = 3 << 20;
    inner.escaped.bytes = 1 << 20;
    report.scopes = {outer, inner};
    report.labels = {{"weights", 2, 1, 1 << 20, 2 << 20}};
    Steps steady;
    steady.kind = "mark";
    steady.name = "end";
    steady.steps = 9000;
    steady.verdict = "steady";
    Steps growing = steady;
    growing.kind = "scope";
    growing.name = "train/step #";
    growing.steps = 5000;
    growing.verdict = "growing";
    growing.trend.bytes_per_step = 1024;
    growing.growing = {{0, {512, 0, 0, 0, 0}}, {1, {512, 0, 0, 0, 0}}};
    Steps few = steady;
    few.verdict = "too few steps";
    report.steps = {steady, few, growing};
    Resolver resolver(report, nullptr);
    const Summary summary = summarize("train.json", report, resolver);
    REQUIRE(summary.steps.size() == 2);
    CHECK(summary.steps[0].steps->verdict == "growing");
    REQUIRE(summary.steps[0].growing.size() == 1);  // one place, two sites
    TextOptions options;
    options.style.ascii = true;
    const std::string text = render_text(summary, resolver, options);
    CHECK(shows(text, "5,000  train/step #\n"));
    CHECK(text.find("train/step #\n") < text.find("  train\n"));
    CHECK(shows(text, "2.00 MiB    1.00 MiB       2  weights\n"));
    CHECK(shows(text, "5,000 steps by scope \"train/step #\": growing\n"));
    CHECK(shows(text, "1.00 KiB/step  (no stack)\n"));
    CHECK(shows(text, "9,000 steps by mark \"end\": steady at 0 B after each"));
    CHECK(shows(render_short(summary, options), "growing\n"));
}
