#include "report/inefficiencies/estimate_peaks.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>

#include "report/reading/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

/// The start or end of an avoidable span, at event `number`.
struct SpanBoundary {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    std::size_t finding = 0;
    bool begins = false;
};

/// Index of the finding by site and reason.
class FindingIndex {
  public:
    explicit FindingIndex(const std::vector<PeakEstimate>& findings) {
        for (std::size_t i = 0; i < findings.size(); ++i) {
            auto& of = of_.at(static_cast<std::size_t>(findings[i].reason));
            for (const std::size_t site : findings[i].sites) {
                of.resize(std::max(of.size(), site + 1), none);
                of[site] = i;
            }
        }
    }
    std::size_t operator()(const AvoidableSpan& avoidable) const {
        const auto& of = of_.at(static_cast<std::size_t>(avoidable.reason));
        return avoidable.site < of.size() ? of[avoidable.site] : none;
    }

  private:
    std::array<std::vector<std::size_t>, AvoidableSpan::reason_count> of_;
};

class PeakEstimator {
  public:
    PeakEstimator(std::vector<SpanBoundary> boundaries, std::vector<PeakEstimate>& findings)
        : boundaries_(std::move(boundaries)), findings_(findings), avoided_(findings.size()) {
        for (const PeakEstimate& finding : findings) {
            if (finding.device >= min_peak_.size()) {
                min_peak_.resize(finding.device + 1);
            }
        }
    }

    /// After the allocation that was event `number`. allocated - avoidable rises at allocations
    /// only: a span ends with its free.
    void allocated(std::uint64_t number, std::uint32_t device, std::uint64_t now) {
        if (device >= min_peak_.size()) {
            return;
        }
        for (; next_ < boundaries_.size() && boundaries_[next_].number <= number; ++next_) {
            const SpanBoundary& boundary = boundaries_[next_];
            std::uint64_t& avoided = avoided_[boundary.finding];
            avoided = boundary.begins ? avoided + boundary.bytes : avoided - boundary.bytes;
        }
        if (now <= min_peak_[device]) {
            return;
        }
        std::uint64_t min_peak = std::numeric_limits<std::uint64_t>::max();
        for (std::size_t i = 0; i < findings_.size(); ++i) {
            PeakEstimate& finding = findings_[i];
            if (finding.device == device) {
                finding.peak_bytes = std::max(finding.peak_bytes, now - std::min(now, avoided_[i]));
                min_peak = std::min(min_peak, finding.peak_bytes);
            }
        }
        min_peak_[device] = min_peak;
    }

  private:
    std::vector<SpanBoundary> boundaries_;
    std::vector<PeakEstimate>& findings_;
    std::vector<std::uint64_t> avoided_;   ///< by finding: avoidable bytes now
    std::vector<std::uint64_t> min_peak_;  ///< by device: the lowest peak_bytes
    std::size_t next_ = 0;
};

/// Passes the allocations of a log to an estimator.
class AllocationReader final : public trace::GenericSink<AllocationReader>,
                               private trace::LiveObserver {
  public:
    explicit AllocationReader(PeakEstimator& estimator) : estimator_(estimator) {
        figures_.set_observer(this);
    }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
        if constexpr (std::same_as<Record, trace::Event>) {
            ++number_;
        }
    }

  private:
    void allocated(std::uint32_t /*slot*/, const trace::Live& /*live*/,
                   const trace::Event& by) override {
        estimator_.allocated(
            number_, by.device,
            figures_.devices()[by.device]->curve(trace::CurveName::allocated).current);
    }

    PeakEstimator& estimator_;
    std::uint64_t number_ = 0;
    trace::Aggregator figures_;
};

}  // namespace

void estimate_peaks(const std::string& log, const CollectedPatterns& patterns,
                    std::vector<PeakEstimate>& findings) {
    const FindingIndex finding_index(findings);
    std::vector<SpanBoundary> boundaries;
    for (const AvoidableSpan& each : patterns.avoidable) {
        const std::size_t finding = finding_index(each);
        if (finding != none) {
            boundaries.push_back({each.begin, each.bytes, finding, true});
            boundaries.push_back({each.end, each.bytes, finding, false});
        }
    }
    // Begins first, so that no sum underflows.
    std::sort(boundaries.begin(), boundaries.end(),
              [](const SpanBoundary& a, const SpanBoundary& b) {
                  return a.number != b.number ? a.number < b.number : a.begins && !b.begins;
              });
    for (PeakEstimate& finding : findings) {
        finding.peak_bytes = 0;
    }
    PeakEstimator estimator(std::move(boundaries), findings);
    if (patterns.allocated.complete()) {
        patterns.allocated.for_each(
            [&estimator](std::uint64_t number, std::uint32_t device, std::uint64_t allocated) {
                estimator.allocated(number, device, allocated);
            });
    } else {
        AllocationReader reader(estimator);
        read_log_ahead(log, reader, trace::LogPart::beginning);
    }
}

}  // namespace memlab::report
