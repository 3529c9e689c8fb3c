// nn.Modules as call sites of their own: sums stay, and names match as users write them.
#include "report/nn_module_parts.hpp"
#include "tests/catch.hpp"
#include "trace/aggregate/nn_modules.hpp"

using namespace memlab::model;
using namespace memlab::report;

namespace {

/// A call site of which two nn.Modules held parts; the second claims more than there is.
Report shared_site() {
    Report report;
    report.devices.resize(1);
    report.devices[0].at_peak.sites = {{0, 4, 400, {}}};
    report.sites.resize(1);
    Site& site = report.sites[0];
    site.kind = "device";
    site.count = 9;
    site.at_peak_count = 4;
    site.at_peak_bytes = 400;
    site.live_count = 1;
    site.live_bytes = 50;
    report.nn_modules.resize(3);
    report.nn_modules[0].name = "Net.encoder.0";
    report.nn_modules[0].sites = {{0, 3, 300, 1, 100, 1, 50}};
    report.nn_modules[1].sites = {{0, 3, 900, 3, 900, 0, 0}};
    return report;
}

}  // namespace

TEST_CASE("what a replay has of nn.Modules is found in any report of the recording") {
    using memlab::trace::NnModuleHolder;
    const std::uint32_t call = NnModuleHolder{.stack = 2, .owner = 0, .nn_module = 5}.code();
    const std::uint32_t label = NnModuleHolder{.stack = 0, .owner = 1, .nn_module = 5}.code();
    Report report;
    report.nn_modules.resize(3);
    report.nn_modules[1].by_label = true;
    CHECK(NnModuleEntries(report).index(call) == 2);
    CHECK(NnModuleEntries(report).index(label) == 1);
    CHECK(NnModuleEntries(report).index(0) == std::nullopt);
    CHECK(NnModuleEntries(report).index(3) == std::nullopt);
    report.nn_modules[1].by_label = false;  // of an older memlab
    CHECK(NnModuleEntries(report).index(call) == 1);
    CHECK(NnModuleEntries(report).index(label) == std::nullopt);
}

TEST_CASE("what nn.Modules held is taken from the call site, and no more than there is") {
    Report report = shared_site();
    separate_nn_modules(report);
    REQUIRE(report.sites.size() == 3);
    CHECK(report.sites[0].at_peak_bytes == 0);
    CHECK(report.sites[0].count == 9);
    CHECK(report.sites[0].freed_elsewhere == 1);
    CHECK(report.sites[1].at_peak_bytes == 100);
    CHECK(report.sites[1].live_bytes == 50);
    CHECK(report.sites[2].at_peak_bytes == 300);
    CHECK(nn_module_of(report, report.sites[0]) == outside_nn_modules);
    CHECK(nn_module_of(report, report.sites[1]) == "Net.encoder.0");
    CHECK(nn_module_of(report, report.sites[2]) == unnamed_nn_modules);
    CHECK(recorded_sites(report, {0, 1, 2}) == std::vector<std::size_t>{0});
    std::uint64_t held = 0;
    for (const Holders::Share& share : report.devices[0].at_peak.sites) {
        CHECK(share.site != 0);  // nothing of it is left
        held += share.bytes;
    }
    CHECK(held == 400);
}

TEST_CASE("a name matches whole or as a pattern, with or without the model's, for all in it") {
    for (const char* const pattern :
         {"Net.encoder.0", "encoder.0", "encoder", "Net", "encoder.*", "*.0", "encoder.?"}) {
        CHECK(matches_nn_module(pattern, "Net.encoder.0.linear1"));
        CHECK(matches_nn_module(pattern, "Net._orig_mod.encoder.0.linear1"));
        CHECK(matches_nn_module(pattern, "module.Net.encoder._fsdp_wrapped_module.0.linear1"));
    }
    for (const char* const pattern : {"encoder.1", "enc", "linear1", "0", "encoder.0.linear"}) {
        CHECK(!matches_nn_module(pattern, "Net.encoder.0.linear1"));
    }
    CHECK(!matches_nn_module("encoder.1", "encoder.10"));
    CHECK(matches_nn_module("encoder.1", "encoder.1"));
    CHECK(!matches_nn_module("*", ""));
}

TEST_CASE("wrappers' parts of a name do not count") {
    CHECK(compared_nn_module("module._orig_mod.a._checkpoint_wrapped_module.b") == "a.b");
    CHECK(compared_nn_module("a.module.b") == "a.module.b");
    CHECK(compared_nn_module("_orig_mod").empty());
}
