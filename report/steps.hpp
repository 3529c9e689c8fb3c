// The steps of a recording by name, and where they end in its event log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record.hpp"

namespace memlab::report {

/// Whether a scope with this path of names ("epoch #/step") is meant by `name`: its path, its own
/// name, or the last parts of its path.
bool is_path_named(std::string_view path, std::string_view name);

/// The same of steps, which may be numbered: "step 12", "step #" are steps of "step".
bool is_step_named(std::string_view path, std::string_view name);

/// Index into Report::steps: of the steps that `name` means (is_step_named) those with the most
/// steps; of all if it is empty. None: there are none.
std::optional<std::size_t> choose_steps(const model::Report& report, const std::string& name);

/// "12 steps by scope "step"", "400 steps that are not marked (Adam.step returns at train.py:51)":
/// not passed through printable().
std::string describe_steps(const model::Steps& steps);

/// "at 1.00 MiB after each", "between 1.00 MiB and 2.00 MiB after each": what was allocated then.
std::string range_after_steps(const model::Steps& steps);

/// Counts the ended steps of one kind while a log is read. Thread-safety: none.
class StepCounter {
  public:
    explicit StepCounter(const model::Steps& steps) : kind_(steps.kind), name_(steps.name) {}

    /// How many steps have ended. The first end of a step is recognized at the second.
    std::uint64_t ended(const trace::Aggregator& figures);

  private:
    std::string kind_;
    std::string name_;
    std::size_t examined_ = 0;    ///< kinds of step that are others
    std::uint64_t left_out_ = 0;  ///< StepStats::kinds_left_out() at the latest look
    std::optional<std::pair<trace::StepKind, std::uint32_t>> key_;
};

/// Recognizes each end of a step by its name, from the first on. Thread-safety: none.
class StepEnds {
  public:
    StepEnds() = default;
    /// All marks.
    static StepEnds all_marks();
    /// Marks and scopes that `name` means; names with and without their numbers.
    static StepEnds named(const std::string& name);
    /// Only the scopes with exactly this path.
    static StepEnds path(const std::string& path);
    /// The steps that the program does not mark.
    static StepEnds at(const trace::StepAnchor& anchor);

    /// Whether the event, which `figures` has taken, ended a step.
    bool is_end(const trace::Event& event, const trace::Aggregator& figures);
    /// The numbers of names and paths are others now.
    void forget_numbers() { known_marks_ = known_paths_ = {}; }

  private:
    enum class Which : std::uint8_t { none, all_marks, named, path, anchor };
    enum class Known : std::uint8_t { no, is_end, other };

    bool matches(std::string_view text) const;

    Which which_ = Which::none;
    std::string name_;
    trace::StepAnchor anchor_;
    std::vector<Known> known_marks_;  ///< by string id
    std::vector<Known> known_paths_;
};

}  // namespace memlab::report
