// The levels of the waterfall, from the used memory of a GPU down to the requested bytes.
#include "report/reading/reader.hpp"
#include "report/summary/waterfall.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

TimelineRow row(std::uint64_t begin, std::uint64_t requested, std::uint64_t allocated,
                std::uint64_t active, std::uint64_t reserved, std::uint64_t used) {
    const auto most = [](std::uint64_t value) { return TimelineRow::Values{0, value, 0}; };
    return {begin, {most(requested), most(allocated), most(active), most(reserved), most(used)}};
}

Report peak_in_the_second_row() {
    Report report;
    Device& device = report.devices.emplace_back();
    device.timeline.bucket_ns = 10;
    device.timeline.rows = {row(0, 1, 1, 1, 20, 50), row(10, 7, 8, 9, 20, 50),
                            row(40, 7, 7, 7, 30, 60), row(50, 7, 7, 7, 30, 70)};
    device.curves.at(static_cast<std::size_t>(Curve::allocated)) = CurveSummary{8, 15, 7};
    return report;
}

}  // namespace

TEST_CASE("the levels at the allocated peak") {
    Report report = peak_in_the_second_row();
    const auto fall = make_waterfall(report, report.devices[0]);
    REQUIRE(fall.has_value());
    CHECK(fall->time_ns == 15);
    CHECK(fall->within_ns == 10);
    CHECK(fall->device_used == 60);  // the sample after the growth
    CHECK(fall->reserved == 20);
    CHECK(fall->active == 9);
    CHECK(fall->allocated == 8);
    CHECK(fall->requested == 7);
    CHECK(fall->outside_pool.empty());
}

TEST_CASE("what a report has of the moment itself is exact") {
    Report report = peak_in_the_second_row();
    CHECK_FALSE(make_waterfall(report, report.devices[0])->is_exact);
    report.devices[0].curves_at_peak = CurvesAtPeak{.reserved = 18, .active = 8, .requested = 6};
    const auto fall = make_waterfall(report, report.devices[0]);
    CHECK(fall->is_exact);
    CHECK(fall->device_used == 60);
    CHECK(fall->reserved == 18);
    CHECK(fall->active == 8);
    CHECK(fall->requested == 6);
}

TEST_CASE("a sample from before memory was reserved tells nothing") {
    Report report = peak_in_the_second_row();
    for (TimelineRow& each : report.devices[0].timeline.rows) {
        each.curves.back() = TimelineRow::Values{5, 5, 5};
    }
    CHECK_FALSE(make_waterfall(report, report.devices[0])->device_used.has_value());
    for (TimelineRow& each : report.devices[0].timeline.rows) {
        each.curves.back().reset();
    }
    CHECK_FALSE(make_waterfall(report, report.devices[0])->device_used.has_value());
}

TEST_CASE("what was reserved since the last sample is in use, too") {
    Report report = peak_in_the_second_row();
    report.devices[0].ledger.emplace().latest = {.time_ns = 14, .used = 50, .reserved = 8};
    CHECK(make_waterfall(report, report.devices[0])->device_used == 62);  // reserved is 20
    report.devices[0].ledger->latest.time_ns = 15;
    CHECK(make_waterfall(report, report.devices[0])->device_used == 60);
}

TEST_CASE("what is outside of the pool, by kind") {
    Report report = peak_in_the_second_row();
    report.sites.resize(5);
    for (Site& site : report.sites) {
        site.at_peak_bytes = 2;
    }
    report.sites[0].kind = "device";
    report.sites[1].kind = "vmm";
    report.sites[2].kind = "vmm";
    report.sites[3].kind = "pinned";
    report.sites[4].kind = "array";
    report.sites[4].device = 1;
    const auto fall = make_waterfall(report, report.devices[0]);
    CHECK(fall->outside_pool == std::map<std::string, std::uint64_t>{{"vmm", 4}});
}

TEST_CASE("a file that says anything keeps the levels in order") {
    Report report = peak_in_the_second_row();
    report.devices[0].timeline.rows[1] = row(10, 100, 1, 2, 3, 4);
    const auto fall = make_waterfall(report, report.devices[0]);
    CHECK(fall->requested <= fall->allocated);
    CHECK(fall->allocated <= fall->active);
    CHECK(fall->active <= fall->reserved);
}

TEST_CASE("without memory, or before the timeline, there is no waterfall") {
    Report report = peak_in_the_second_row();
    report.devices[0].timeline.rows.erase(report.devices[0].timeline.rows.begin());
    report.devices[0].curves.at(1)->peak_time_ns = 3;
    CHECK_FALSE(make_waterfall(report, report.devices[0]).has_value());
    CHECK_FALSE(make_waterfall(report, Device{}).has_value());
}

TEST_CASE("of a recording") {
    const ReadResult read =
        read_report(std::string(MEMLAB_TEST_DATA) + "/h100/jax_platform_allocator.json");
    REQUIRE(read.report);
    const Device& device = read.report->devices.front();
    const auto fall = make_waterfall(*read.report, device);
    REQUIRE(fall);
    CHECK(fall->allocated == device.curve(Curve::allocated).peak_bytes);
    CHECK(fall->outside_pool.at("vmm") == 114ULL << 20);
    REQUIRE(fall->device_used);
    CHECK(*fall->device_used <= device.curve(Curve::device_used).peak_bytes);
    CHECK(*fall->device_used - fall->reserved > 500ULL << 20);  // an H100's context and modules
}
