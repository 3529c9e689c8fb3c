// Collects memory figures at each allocation, by call stack: the data of line tables before stacks
// are resolved to lines. It is collected while the log is aggregated into a report, so that the log
// is read only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/lines/query.hpp"
#include "report/reading/reader.hpp"
#include "report/steps.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

/// Thread-safety: none.
class StackMoments {
  public:
    /// Whether allocations of a kind by a stack on a device are to be collected.
    using Wanted =
        std::function<bool(std::uint64_t device, std::uint32_t stack, trace::MemoryKind kind)>;

    /// The allocations of one kind by one stack on one device in one group of steps.
    struct Allocations {
        std::uint32_t device = 0;
        std::uint32_t stack = 0;
        trace::MemoryKind kind = trace::MemoryKind::device;
        std::uint32_t next = 0;    ///< slot of the next of the same stack, plus one; 0: none
        std::uint64_t latest = 0;  ///< number of the last one in the log; 0: none succeeded
        std::uint64_t ooms = 0;    ///< failed allocations
    };

    /// Consecutive steps; without --every the whole run. Ordered by first allocation.
    struct Group {
        std::uint64_t number = 0;
        std::vector<Allocations> allocations;
        std::vector<std::uint64_t>
            values;  ///< columns().size() values per element of `allocations`
    };

    /// An empty `wanted` takes all. Memory: O(wanted stacks), times the groups of steps with
    /// --every.
    explicit StackMoments(const LineQuery& query, Wanted wanted = {}, StepEnds ends = {});

    /// For read_report(): collects while the log is aggregated. Empty if the query has steps:
    /// line_tables() then reads the log again with a `wanted`.
    LogSinkFactory sink_factory();

    /// The sink that `log` is read into. This and `figures` must outlive it.
    std::unique_ptr<trace::RecordSink> follow(const std::string& log, trace::Aggregator& figures);

    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    const std::vector<LineColumn>& columns() const { return columns_; }
    const std::vector<Group>& groups() const { return groups_; }
    /// The time from which on the log has all events, if some before are missing.
    std::optional<std::uint64_t> gap_end_ns() const {
        return has_gap_ ? std::optional(gap_end_ns_) : std::nullopt;
    }
    /// Number of steps that ended.
    std::uint64_t steps_ended() const { return steps_ended_; }

  private:
    class Sink;

    /// An allocation that `size` bytes serve.
    void record(const trace::Event& event, std::uint64_t size, const trace::Aggregator& figures);
    void record(const trace::OomEvent& event, const trace::Aggregator& figures);
    /// Index in the current group's allocations; `none` when not wanted.
    template <typename Event>
    std::size_t find_slot(const Event& event, const trace::Aggregator& figures);
    const std::uint64_t* statistic(const trace::DeviceTotals& device, std::size_t column);

    static constexpr std::size_t none = ~std::size_t{0};

    std::vector<LineColumn> columns_;
    std::uint64_t every_;
    Wanted wanted_;
    StepEnds ends_;
    std::string log_;
    std::vector<Group> groups_;
    std::vector<std::uint32_t> first_;  ///< by stack: slot of its first in the group, plus one
    /// By device and column: pointer to the value; null: not looked up yet.
    std::vector<std::vector<const std::uint64_t*>> statistics_;
    std::uint64_t steps_ended_ = 0;
    bool has_gap_ = false;
    std::uint64_t gap_end_ns_ = 0;
    std::uint64_t group_ = 0;
    std::uint64_t allocations_ = 0;
};

}  // namespace memlab::report
