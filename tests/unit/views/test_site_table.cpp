// The flat table of call sites.
#include <limits>
#include <nlohmann/json.hpp>

#include "report/views/site_table.hpp"
#include "tests/catch.hpp"
#include "tests/unit/views/synthetic_report.hpp"
#include "trace/record.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

std::vector<SiteTable> tables_of(const Report& report, const ViewOptions& options) {
    Resolver resolver(report, nullptr);
    return site_tables(report, resolver, std::vector<bool>(report.sites.size(), true), options);
}

/// forward on two call stacks, backward, pinned memory of forward, and one site without a stack.
SyntheticReport many_ways() {
    SyntheticReport made;
    made.site({"forward", "step"}, 4 * mib).temporaries = 5;
    made.site({"forward", "validate"}, 2 * mib);
    made.site({"backward", "step"}, 3 * mib).live_bytes = mib;
    made.site({"forward", "step"}, 8 * mib, "pinned");
    made.site({}, mib);
    return made;
}

}  // namespace

TEST_CASE("the kinds of memory that curves count are those that the aggregator counts") {
    for (int i = 0; i < memlab::trace::memory_kind_count; ++i) {
        const auto kind = static_cast<memlab::trace::MemoryKind>(i);
        CHECK(is_in_curves(memlab::trace::name_of(kind)) ==
              memlab::trace::counts_as_device_memory(kind));
    }
}

TEST_CASE("sites of one place and kind are one row") {
    const SyntheticReport made = many_ways();
    const auto tables = tables_of(made.report, {});
    REQUIRE(tables.size() == 1);
    const auto& rows = tables[0].rows;
    REQUIRE(rows.size() == 4);
    CHECK(rows[0].place.function == "forward");
    CHECK(rows[0].stats.peak_bytes == 6 * mib);
    CHECK(rows[0].stats.count == 2);
    CHECK(rows[0].sites == std::vector<std::size_t>{0, 1});
    CHECK(rows[1].place.function == "backward");
    CHECK_FALSE(rows[2].place.recorded);
    CHECK(rows[3].kind == "pinned");
    CHECK(rows[3].stats.peak_bytes == 0);  // not in the curve
    CHECK(rows[3].stats.bytes == 8 * mib);
    CHECK(tables[0].whole == tables[0].taken);
    CHECK(tables[0].whole.peak_bytes == 10 * mib);
}

TEST_CASE("rows come in the order that was asked for") {
    const SyntheticReport made = many_ways();
    ViewOptions options;
    options.order = parse_order("bytes");
    CHECK(tables_of(made.report, options)[0].rows[0].kind == "pinned");
    options.order = parse_order("live");
    CHECK(tables_of(made.report, options)[0].rows[0].place.function == "backward");
    options.order = parse_order("temporaries");
    CHECK(tables_of(made.report, options)[0].rows[0].stats.temporaries == 5);
}

TEST_CASE("the program's names stand below the place, those of all its sites") {
    SyntheticReport made;
    made.site({"forward", "step"}, 4 * mib).labels = {{"acts\x1b", 2, 1, 4 * mib}};
    made.site({"forward", "validate"}, 2 * mib).labels = {{"acts\x1b", 3, 0, 0},
                                                          {"logits", 9, 0, 0}};
    ViewOptions options;
    options.style.ascii = true;
    const auto tables = tables_of(made.report, options);
    const SiteRow& row = tables[0].rows[0];
    REQUIRE(row.labels.size() == 2);
    CHECK((row.labels[0].count == 5 && row.labels[0].live_bytes == 4 * mib));
    REQUIRE(live_labels(row).size() == 1);
    CHECK(live_labels(row)[0].bytes == 4 * mib);
    const std::string text = render_sites_text(tables, options);
    CHECK(text.find(" \"logits\", \"acts?\"\n") != std::string::npos);
    const auto json = nlohmann::json::parse(render_sites_json("f", tables, options));
    CHECK(json["devices"][0]["sites"][0]["labels"][1]["name"] == "logits");
    CHECK(json["devices"][0]["sites"][0]["labels"][0]["count"] == 5);
}

TEST_CASE("shares are of the device, whatever is taken") {
    const SyntheticReport made = many_ways();
    Resolver resolver(made.report, nullptr);
    ViewOptions options;
    options.style.ascii = true;
    options.filter = "func=back\x1bward";
    const auto tables =
        site_tables(made.report, resolver, {false, false, true, false, false}, options);
    REQUIRE(tables[0].rows.size() == 1);
    CHECK(tables[0].taken.peak_bytes == 3 * mib);
    const std::string text = render_sites_text(tables, options);
    CHECK(text.find("30.0%") != std::string::npos);
    CHECK(text.find("only func=back?ward") != std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("what does not fit is summed up") {
    const SyntheticReport made = many_ways();
    ViewOptions options;
    options.top = 1;
    const auto tables = tables_of(made.report, options);
    const std::string text = render_sites_text(tables, options);
    CHECK(text.find("[3 others]") != std::string::npos);
    const auto json = nlohmann::json::parse(render_sites_json("f", tables, options));
    const auto& device = json["devices"][0];
    CHECK(device["sites"].size() == 1);
    CHECK(device["sites"][0]["share"] == 0.6);
    CHECK(device["others"]["places"] == 3);
    CHECK(device["others"]["at_peak_bytes"] == 4 * mib);
    CHECK(json["filter"].is_null());
}

TEST_CASE("sums that do not fit stop at the largest number") {
    SyntheticReport made;
    made.site({"forward"}, std::numeric_limits<std::uint64_t>::max());
    made.site({"forward", "step"}, 5);
    const auto tables = tables_of(made.report, {});
    CHECK(tables[0].rows[0].stats.bytes == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("a report without memory has no table") {
    const Report report;
    CHECK(render_sites_text(tables_of(report, {}), {}) == "No GPU memory was allocated.\n");
}
