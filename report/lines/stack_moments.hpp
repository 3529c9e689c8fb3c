// How much was held whenever a call stack allocated: the figures of a line table before anyone
// knows on which lines the stacks are. So a log need be read but once: it is added up into a
// report, whose symbols tell the lines, and the moments of each stack are noted on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "report/lines/query.hpp"
#include "report/reader.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

/// Thread-safety: none.
class StackMoments {
  public:
    /// Whether anyone wants to know of the allocations of a kind by a stack on a device.
    using Wanted =
        std::function<bool(std::uint64_t device, std::uint32_t stack, trace::MemoryKind kind)>;

    /// The allocations of one kind by one stack on one device in one group of steps.
    struct Allocations {
        std::uint32_t device = 0;
        std::uint32_t stack = 0;
        trace::MemoryKind kind = trace::MemoryKind::device;
        std::uint32_t next = 0;    ///< place of the next of the same stack, plus one; 0: none
        std::uint64_t latest = 0;  ///< number of the last among all of the log; 0: none succeeded
        std::uint64_t ooms = 0;    ///< those that failed
    };

    /// Consecutive steps; without --every the whole run. In the order of their first allocation.
    struct Group {
        std::uint64_t number = 0;
        std::vector<Allocations> allocations;
        std::vector<std::uint64_t> values;  ///< for each of them, each of columns()
    };

    /// Without `wanted`: of all. Memory: O(those that are wanted x steps), where the query has
    /// steps.
    explicit StackMoments(const LineQuery& query, Wanted wanted = {});

    /// Notes what there is to note while a log is read into a report. Empty where the query has
    /// steps: line_tables() knows whose are wanted, and reads the log again.
    LogFollower follower();

    /// The sink that `log` is read into. This and `figures` must outlive it.
    std::unique_ptr<trace::RecordSink> follow(const std::string& log, trace::Aggregator& figures);

    /// The log that was followed last; empty: none.
    const std::string& log() const { return log_; }
    const std::vector<LineColumn>& columns() const { return columns_; }
    const std::vector<Group>& groups() const { return groups_; }
    /// How many ended a step.
    std::uint64_t marks() const { return marks_; }

  private:
    class Sink;

    void see(const trace::Event& event, const trace::Aggregator& figures);
    void see(const trace::OomEvent& event, const trace::Aggregator& figures);
    void see_mark(const std::string& name);
    /// Their place in the current group; `none` where nobody wants them.
    template <typename Event>
    std::size_t place_of(const Event& event, const trace::Aggregator& figures);
    const std::uint64_t* statistic(const trace::DeviceTotals& device, std::size_t column);

    static constexpr std::size_t none = ~std::size_t{0};

    std::vector<LineColumn> columns_;
    std::uint64_t every_;
    std::string mark_;
    Wanted wanted_;
    std::string log_;
    std::vector<Group> groups_;
    std::vector<std::uint32_t> first_;  ///< by stack: place of its first in the group, plus one
    /// By device and column: where it is; null: not looked up yet.
    std::vector<std::vector<const std::uint64_t*>> statistics_;
    std::uint64_t marks_ = 0;
    std::uint64_t group_ = 0;
    std::uint64_t allocations_ = 0;
};

}  // namespace memlab::report
