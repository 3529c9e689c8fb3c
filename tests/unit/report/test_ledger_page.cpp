// The ledger of a GPU that others use, too: what NVML says of them decides what the rows claim.
#include <string_view>

#include "report/summary/ledger.hpp"
#include "report/symbols/resolver.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

using Witnesses = std::vector<Ledger::Witness>;

Ledger::Witness seen(std::uint64_t time, std::uint64_t own, std::uint64_t others,
                     std::uint64_t processes) {
    return {time, "seen", own, others, processes};
}

/// 1,000 bytes grew while work ran, and a context of 50 was made; both moments are at 10.
Report grown(const Witnesses& witnesses) {
    Report report;
    report.modules.emplace_back();
    report.stacks.emplace_back();
    Ledger ledger;
    ledger.peak = {.time_ns = 10, .used = 1200, .growth = 1000};
    ledger.latest = ledger.peak;
    ledger.rows = {{.kind = "context", .count = 1, .at_peak_bytes = 50, .bytes = 50}};
    ledger.witnesses = witnesses;
    report.devices.emplace_back().ledger = ledger;
    return report;
}

LedgerPage page_of(const Report& report, LedgerAt at = LedgerAt::peak) {
    Resolver resolver(report, nullptr);
    return *ledger_page(report.devices[0], resolver, at);
}

std::string title_of_growth(const LedgerPage& page) {
    for (const LedgerGroup& group : page.groups) {
        if (group.kind == "growth") {
            return group.title;
        }
    }
    return {};
}

std::uint64_t sum(const LedgerPage& page) {
    std::uint64_t bytes = page.rest;
    for (const LedgerGroup& group : page.groups) {
        bytes += group.bytes;
    }
    return bytes;
}

constexpr const char* own = "growth while work ran: code loaded at a first launch, local memory";
constexpr const char* anybodys =
    "growth while work ran: code loaded at a first launch, local memory, or other processes";

}  // namespace

TEST_CASE("what others had in use before the first context is not called contexts") {
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    const auto title = [&](std::uint64_t bytes, const Witnesses& witnesses) {
        Report report = grown(witnesses);
        Ledger& ledger = *report.devices[0].ledger;
        ledger.peak.used = bytes + 1200;
        ledger.rows = {
            {.kind = "context", .count = 1, .at_peak_bytes = bytes, .bytes = bytes, .whole = true}};
        const LedgerPage page = page_of(report);
        for (const LedgerGroup& group : page.groups) {
            if (group.kind == "context") {
                return group.title;
            }
        }
        return std::string();
    };
    CHECK(title(57 * gib, {}) == "contexts, and what other processes had in use before");
    CHECK(title(gib / 2, {}) == "contexts");
    // NVML tells them apart.
    CHECK(title(57 * gib, {seen(5, gib / 2, 57 * gib - gib / 2, 1)}) == "contexts");
}

TEST_CASE("what no process has by NVML is the driver's, not the first context's") {
    const auto page = [](std::uint64_t own, std::uint64_t others, std::uint64_t asked_ns) {
        Report report = grown({seen(1, 50, others, 1), seen(asked_ns, own, others, 1)});
        Ledger& ledger = *report.devices[0].ledger;
        ledger.peak = {.time_ns = 5, .used = 900, .growth = 0};
        ledger.latest = {.time_ns = 1'000'000'000, .used = 700, .growth = 0};
        ledger.rows = {
            {.kind = "context", .count = 1, .at_peak_bytes = 645, .bytes = 645, .whole = true}};
        return page_of(report);
    };
    const LedgerPage told = page(500, 100, 1'000'000'010);
    CHECK(told.bytes_of("driver_own") == 100);
    CHECK(told.bytes_of("others") == 100);
    CHECK(told.bytes_of("context") == 445);
    CHECK(sum(told) == 900);
    // All is some process's; long ago; more than the context's, so given back meanwhile.
    for (const LedgerPage& not_told : {page(600, 100, 1'000'000'010), page(500, 100, 3'000'000'000),
                                       page(0, 20, 1'000'000'010)}) {
        CHECK(not_told.bytes_of("driver_own") == 0);
        CHECK(sum(not_told) == 900);
    }
}

TEST_CASE("what grew is the process's own where NVML saw no other") {
    const LedgerPage page = page_of(grown({seen(1, 50, 0, 0), seen(11, 400, 0, 0)}));
    CHECK(title_of_growth(page) == own);
    CHECK(page.bytes_of("growth") == 1000);
    CHECK(page.others_in_rows == 0);
}

TEST_CASE("what grew may be others' where nobody says that it is not") {
    for (const Witnesses& witnesses :
         {Witnesses{}, Witnesses{{1, "absent", 0, 0, 0}}, Witnesses{{1, "elsewhere", 0, 900, 2}},
          Witnesses{seen(1, 50, 0, 0), {11, "absent", 0, 0, 0}}}) {
        const LedgerPage page = page_of(grown(witnesses));
        CHECK(title_of_growth(page) == anybodys);
        CHECK(page.bytes_of("growth") == 1000);
        CHECK(page.bytes_of("others") == 0);
        CHECK(sum(page) == 1200);
    }
}

TEST_CASE("no more grew of the process than NVML has for it") {
    const LedgerPage page = page_of(grown({seen(1, 50, 20, 1), seen(11, 400, 30, 1)}));
    CHECK(title_of_growth(page) == anybodys);
    CHECK(page.bytes_of("growth") == 400);
    CHECK(page.bytes_of("others") == 610);  // with the 10 that the rest got
    CHECK(page.rest == 140);
    CHECK(page.others_in_rows == 50);  // growth and context are more than NVML has
    CHECK(sum(page) == 1200);
}

TEST_CASE("NVML's figure bounds nothing that was given back before it, or came after it") {
    Report report = grown({seen(1, 50, 20, 1), seen(11, 400, 20, 1)});
    report.devices[0].ledger->latest = {.time_ns = 11, .used = 700, .growth = 500};
    CHECK(page_of(report).bytes_of("growth") == 1000);
    CHECK(page_of(report).others_in_rows == 0);
    CHECK(page_of(report, LedgerAt::end).bytes_of("growth") == 400);

    const LedgerPage later = page_of(grown({seen(1, 50, 20, 1), seen(9, 400, 20, 1)}));
    CHECK(later.bytes_of("growth") == 1000);
    CHECK(later.others_in_rows == 0);
}

TEST_CASE("what is estimated stands apart in its group") {
    Report report = grown({});
    report.devices[0].ledger->rows.push_back(
        {.kind = "stream", .api = "cuStreamCreate", .count = 3, .at_peak_bytes = 6, .bytes = 6});
    report.devices[0].ledger->rows.push_back(
        {.kind = "stream", .count = 40, .at_peak_bytes = 80, .bytes = 80, .estimated = true});
    report.devices[0].ledger->rows.push_back({.kind = "launch",
                                              .api = "cuLaunchKernel",
                                              .object = "/opt/libkernels.so",
                                              .count = 1,
                                              .at_peak_bytes = 9,
                                              .bytes = 9});
    const LedgerPage page = page_of(report);
    CHECK(page.bytes_of("stream") == 86);
    CHECK(page.bytes_of("launch") == 9);
    CHECK(sum(page) == page.used);
    for (const LedgerGroup& group : page.groups) {
        if (group.kind == "stream") {
            REQUIRE(group.lines.size() == 2);
            CHECK(group.lines[0].estimated);
            CHECK(group.lines[0].count == 40);
            CHECK(group.lines[0].what == "calls that were not measured");
            CHECK_FALSE(group.lines[1].estimated);
        } else if (group.kind == "launch") {
            CHECK(group.lines[0].what == "libkernels.so");
            CHECK(group.lines[0].api == "cuLaunchKernel");
        }
    }
}
