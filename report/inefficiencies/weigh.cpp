#include "report/inefficiencies/weigh.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "report/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

/// From event `number` on the finding's bytes are avoidable, or no longer.
struct Change {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    std::size_t finding = 0;
    bool begins = false;
};

/// By site and reason: the finding that it belongs to.
class FindingOf {
  public:
    explicit FindingOf(const std::vector<Weighed>& findings) {
        for (std::size_t i = 0; i < findings.size(); ++i) {
            auto& of = of_.at(static_cast<std::size_t>(findings[i].why));
            for (const std::size_t site : findings[i].sites) {
                of.resize(std::max(of.size(), site + 1), none);
                of[site] = i;
            }
        }
    }
    std::size_t operator()(const Avoidable& avoidable) const {
        const auto& of = of_.at(static_cast<std::size_t>(avoidable.why));
        return avoidable.site < of.size() ? of[avoidable.site] : none;
    }

  private:
    std::array<std::vector<std::size_t>, 4> of_;
};

class Weigher final : public trace::EveryRecord<Weigher> {
  public:
    Weigher(std::vector<Change> changes, std::vector<Weighed>& findings)
        : changes_(std::move(changes)), findings_(findings), avoided_(findings.size()) {
        for (const Weighed& finding : findings) {
            if (finding.device >= lowest_.size()) {
                lowest_.resize(finding.device + 1);
            }
        }
    }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const trace::Event& event) {
        figures_.on(event);
        for (; next_ < changes_.size() && changes_[next_].number <= number_; ++next_) {
            const Change& change = changes_[next_];
            std::uint64_t& avoided = avoided_[change.finding];
            avoided = change.begins ? avoided + change.bytes : avoided - change.bytes;
        }
        ++number_;
        // The difference rises with allocations alone: what ends being avoidable was freed.
        if (event.type == trace::EventType::alloc && event.device < lowest_.size()) {
            rise(event.device);
        }
    }

  private:
    void rise(std::uint32_t device) {
        const std::uint64_t now =
            figures_.devices()[device]->curve(trace::CurveName::allocated).current;
        if (now <= lowest_[device]) {
            return;
        }
        std::uint64_t lowest = std::numeric_limits<std::uint64_t>::max();
        for (std::size_t i = 0; i < findings_.size(); ++i) {
            Weighed& finding = findings_[i];
            if (finding.device == device) {
                finding.peak_bytes = std::max(finding.peak_bytes, now - std::min(now, avoided_[i]));
                lowest = std::min(lowest, finding.peak_bytes);
            }
        }
        lowest_[device] = lowest;
    }

    std::vector<Change> changes_;
    std::vector<Weighed>& findings_;
    std::vector<std::uint64_t> avoided_;  ///< by finding: now
    std::vector<std::uint64_t> lowest_;   ///< by device: no finding has a lower peak
    std::size_t next_ = 0;
    std::uint64_t number_ = 0;
    trace::Aggregator figures_;
};

}  // namespace

void weigh(const std::string& log, const std::vector<Avoidable>& avoidable,
           std::vector<Weighed>& findings) {
    const FindingOf finding_of(findings);
    std::vector<Change> changes;
    for (const Avoidable& each : avoidable) {
        const std::size_t finding = finding_of(each);
        if (finding != none) {
            changes.push_back({each.begin, each.bytes, finding, true});
            changes.push_back({each.end, each.bytes, finding, false});
        }
    }
    // What begins comes first: nothing is given back that has not begun.
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
        return a.number != b.number ? a.number < b.number : a.begins && !b.begins;
    });
    for (Weighed& finding : findings) {
        finding.peak_bytes = 0;
    }
    Weigher weigher(std::move(changes), findings);
    read_log_ahead(log, weigher);
}

}  // namespace memlab::report
