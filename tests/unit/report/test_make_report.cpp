// The model of a recording is that of its text, whatever was recorded.
#include <string>

#include "model/json_writer.hpp"
#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace model = memlab::model;
namespace report = memlab::report;
using memlab::test::PlausibleRecords;
using memlab::test::Records;
using memlab::test::WildRecords;

namespace {

/// A reader of text passes over what is for other tools only.
void forget_what_is_for_others(model::Report& report) {
    report.contexts.clear();
    for (model::Oom& oom : report.ooms) {
        oom.limit_bytes.reset();
        oom.pool = {};
        oom.kinds = {};
    }
}

/// Whether there was a report to compare.
bool check_same(const Records& records) {
    memlab::trace::Aggregator aggregator;
    memlab::test::feed(records, aggregator);
    report::ReadResult made = report::make_report(aggregator, model::Moment::end);
    const report::ReadResult parsed = report::parse_report(model::report_to_string(aggregator));
    CHECK(made.error == parsed.error);
    REQUIRE(made.report.has_value() == parsed.report.has_value());
    if (!made.report) {
        return false;
    }
    forget_what_is_for_others(*made.report);
    CHECK(made.report->process == parsed.report->process);
    CHECK(made.report->options == parsed.report->options);
    CHECK(made.report->devices == parsed.report->devices);
    CHECK(made.report->frames == parsed.report->frames);
    CHECK(made.report->ooms == parsed.report->ooms);
    CHECK(made.report->scopes == parsed.report->scopes);
    CHECK(made.report->coverage == parsed.report->coverage);
    CHECK(*made.report == *parsed.report);
    return true;
}

}  // namespace

TEST_CASE("random recordings: the model is that of the text, and so is what is wrong") {
    std::size_t reports = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        for (const std::size_t count : {0, 30, 1000}) {
            reports += check_same(PlausibleRecords::make(seed, count, seed % 2 == 0)) ? 1 : 0;
            reports += check_same(WildRecords::make(seed, count, seed % 2 == 0)) ? 1 : 0;
        }
    }
    CHECK(reports > 60);
}
