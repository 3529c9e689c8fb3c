// The remaining peak against a reference that stores the whole curve of every finding.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "report/inefficiencies/estimate_peaks.hpp"
#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;

namespace {

/// The allocated curve of each device after each event.
std::map<std::uint64_t, std::vector<std::uint64_t>> curves_of(const Records& records) {
    std::map<std::uint64_t, std::vector<std::uint64_t>> curves;
    memlab::trace::Aggregator figures;
    for (const AnyRecord& record : records) {
        feed(record, figures);
        if (!std::holds_alternative<Event>(record)) {
            continue;
        }
        for (const auto& device : figures.devices()) {
            if (device != nullptr) {
                curves[device->info.index].push_back(
                    device->curve(memlab::trace::CurveName::allocated).current);
            }
        }
    }
    return curves;
}

std::uint64_t peak_without(const std::vector<std::uint64_t>& curve,
                           const std::vector<AvoidableSpan>& avoidable,
                           const PeakEstimate& finding) {
    std::vector<std::uint64_t> left = curve;
    for (const AvoidableSpan& each : avoidable) {
        if (each.reason != finding.reason || std::find(finding.sites.begin(), finding.sites.end(),
                                                       each.site) == finding.sites.end()) {
            continue;
        }
        for (std::uint64_t at = each.begin; at < each.end && at < left.size(); ++at) {
            left[at] -= std::min(left[at], each.bytes);
        }
    }
    return left.empty() ? 0 : *std::max_element(left.begin(), left.end());
}

}  // namespace

TEST_CASE("random recordings: the peak that is left of every site is that of the whole curve") {
    std::size_t lowered = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const TemporaryFolder folder;
        const std::string path = folder / "log.memlog";
        const Records records = PlausibleRecords::make(seed, 1500);
        auto created = memlab::trace::LogWriter::create(path, 0);
        REQUIRE(created.writer);
        feed(records, *created.writer);
        created.writer->close();
        const ReadResult read = read_report(path);
        REQUIRE(read.report);
        const memlab::model::Steps* const steps =
            read.report->steps.empty() ? nullptr : &read.report->steps.front();
        const CollectedPatterns patterns = collect_patterns(
            *read.report, path, steps, std::vector<std::uint32_t>(read.report->sites.size()));
        std::vector<PeakEstimate> findings;
        for (std::size_t site = 0; site < read.report->sites.size(); ++site) {
            for (const auto reason :
                 {AvoidableSpan::Reason::replaced, AvoidableSpan::Reason::outlived,
                  AvoidableSpan::Reason::unused, AvoidableSpan::Reason::leaked}) {
                findings.push_back({read.report->sites[site].device, reason, {site}, 0});
            }
        }
        estimate_peaks(path, patterns, findings);
        std::vector<PeakEstimate> read_again = findings;
        CollectedPatterns without_curve = patterns;
        without_curve.allocated = AllocatedCurve(0);
        without_curve.allocated.add(0, 0, 0);
        REQUIRE_FALSE(without_curve.allocated.complete());
        estimate_peaks(path, without_curve, read_again);
        for (std::size_t i = 0; i < findings.size(); ++i) {
            CHECK(read_again[i].peak_bytes == findings[i].peak_bytes);
        }
        auto curves = curves_of(records);
        for (const PeakEstimate& finding : findings) {
            const std::vector<std::uint64_t>& curve = curves[finding.device];
            INFO("seed " << seed << ", site " << finding.sites.front() << ", reason "
                         << static_cast<int>(finding.reason));
            CHECK(finding.peak_bytes == peak_without(curve, patterns.avoidable, finding));
            lowered +=
                !curve.empty() && finding.peak_bytes < *std::max_element(curve.begin(), curve.end())
                    ? 1
                    : 0;
        }
    }
    CHECK(lowered > 20);  // the test must have covered this
}

TEST_CASE("random recordings: what is avoidable of a site is never more than it held") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const TemporaryFolder folder;
        const std::string path = folder / "log.memlog";
        auto created = memlab::trace::LogWriter::create(path, 0);
        REQUIRE(created.writer);
        feed(PlausibleRecords::make(seed, 3000), *created.writer);
        created.writer->close();
        const ReadResult read = read_report(path);
        REQUIRE(read.report);
        const CollectedPatterns patterns = collect_patterns(
            *read.report, path, nullptr, std::vector<std::uint32_t>(read.report->sites.size()));
        for (std::size_t i = 0; i < patterns.sites.size(); ++i) {
            const SitePatterns& found = patterns.sites[i];
            const memlab::model::Site& site = read.report->sites[i];
            CHECK(found.max_live <= site.count);
            CHECK(found.replaced_count <= site.count);
            CHECK(found.replaced_bytes <= site.bytes);
            CHECK(found.rounding_at_peak <=
                  site.bytes - std::min(site.bytes, site.requested_bytes));
            CHECK(found.outlived_count == 0);
        }
        for (const AvoidableSpan& each : patterns.avoidable) {
            CHECK(each.begin <= each.end);
            CHECK(each.site < patterns.sites.size());
        }
    }
}
