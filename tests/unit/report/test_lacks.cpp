// What a recording lacks: each kind from the figures that tell of it, and none from a whole one.
#include "report/lacks.hpp"

#include <set>
#include <string>

#include "tests/catch.hpp"

namespace memlab::report {
namespace {

using Kind = Lack::Kind;

model::Report whole() {
    model::Report report;
    report.process.ended = "exit";
    report.process.duration_ns = 1000;
    return report;
}

std::vector<Kind> kinds_of(const model::Report& report) {
    std::vector<Kind> kinds;
    for (const Lack& lack : find_lacks(report)) {
        kinds.push_back(lack.kind);
        CHECK(lack.text.find("  ") == std::string::npos);
        CHECK(lack.text.back() == '.');
        CHECK_FALSE(lack.text.starts_with("0 "));
    }
    return kinds;
}

}  // namespace

TEST_CASE("a whole recording lacks nothing") {
    CHECK(kinds_of(whole()).empty());
    CHECK_FALSE(known_until(whole()));
}

TEST_CASE("each kind of lack has a name of its own, in the order of the kinds") {
    std::set<std::string> names;
    for (std::size_t i = 0; i < lack_infos.size(); ++i) {
        CHECK(lack_infos[i].kind == static_cast<Kind>(i));
        names.insert(std::string(lack_infos[i].name));
        CHECK_FALSE(lack_infos[i].uncertain.empty());
        CHECK_FALSE(lack_infos[i].advice.empty());
    }
    CHECK(names.size() == static_cast<std::size_t>(Kind::ranks) + 1);
}

TEST_CASE("what the report says of itself is a lack each") {
    using Edit = void (*)(model::Report&);
    const std::vector<std::pair<Kind, Edit>> edits = {
        {Kind::started_late, [](model::Report& r) { r.process.started_late = true; }},
        {Kind::damaged, [](model::Report& r) { r.log.damage = "The event log is damaged."; }},
        {Kind::running, [](model::Report& r) { r.process.ended = "running"; }},
        {Kind::cut_off, [](model::Report& r) { r.process.ended = "cut off"; }},
        {Kind::gap, [](model::Report& r) { r.log.gap.emplace(); }},
        {Kind::gap, [](model::Report& r) { r.log.dropped = 3; }},
        {Kind::missed,
         [](model::Report& r) {
             r.missed.push_back({"a", 1, 5, 0, "at least"});
         }},
        {Kind::missed,
         [](model::Report& r) {
             r.missed.push_back({"a", 1, 5, 0, ""});
         }},
        {Kind::bypassed, [](model::Report& r) { r.coverage.bypassed_count = 1; }},
        {Kind::audit, [](model::Report& r) { r.coverage.lost_records = 1; }},
        {Kind::unseen, [](model::Report& r) { r.integrity.unmatched_segment_frees = 1; }},
        {Kind::unseen, [](model::Report& r) { r.integrity.overwritten_segments = 1; }},
        {Kind::order, [](model::Report& r) { r.integrity.earlier_times = 1; }},
        {Kind::overflow, [](model::Report& r) { r.integrity.overflowed = true; }},
        {Kind::host_memory, [](model::Report& r) { r.integrity.incomplete = true; }},
        {Kind::scopes, [](model::Report& r) { r.unbalanced_scopes.too_many_open = 1; }},
        {Kind::steps, [](model::Report& r) { r.step_kinds_left_out = 1; }},
    };
    for (const auto& [kind, edit] : edits) {
        model::Report report = whole();
        edit(report);
        CHECK(kinds_of(report) == std::vector{kind});
    }
    model::Report report = whole();
    report.missed.push_back({"a", 1, 5, 0, "complete"});
    report.step_kinds_left_out = 0;
    CHECK(kinds_of(report).empty());
}

TEST_CASE("a recording that stopped is known until then; an older one does not say when") {
    model::Report report = whole();
    report.log.dropped = 3;
    report.log.stopped_because = "the disk is full";
    CHECK_FALSE(known_until(report));  // the process wrote this report itself
    report.from_log = true;
    CHECK(kinds_of(report) == std::vector{Kind::stopped});
    CHECK_FALSE(find_lacks(report)[0].known);
    CHECK(find_lacks(report)[0].text.find("stopped at the latest after 1.0 us") !=
          std::string::npos);
    CHECK(known_until(report) == 1000);
    report.log.stopped_time_ns = 300;
    CHECK(find_lacks(report)[0].known);
    CHECK(find_lacks(report)[0].from_ns == 300);
    CHECK(known_until(report) == 300);
}

TEST_CASE("an image that exec replaced has its end") {
    model::Report report = whole();
    report.process.ended = "cut off";
    CHECK(find_lacks_of_replaced(report).empty());
    report.integrity.incomplete = true;
    CHECK(find_lacks_of_replaced(report).size() == 1);
}

TEST_CASE("where there may have been more kinds of steps than are followed, that is not known") {
    model::Report report = whole();
    for (int i = 0; i < 63; ++i) {
        report.scopes.emplace_back();
    }
    CHECK(kinds_of(report).empty());
    report.marks.resize(2);
    report.marks[0].name = "step 1";
    report.marks[1].name = "step 2";
    report.mark_count = 2;
    CHECK(kinds_of(report) == std::vector{Kind::steps});
    CHECK_FALSE(find_lacks(report)[0].known);
    report.step_kinds_left_out = 0;  // a newer one says
    CHECK(kinds_of(report).empty());
}

}  // namespace memlab::report
