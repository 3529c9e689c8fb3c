// A log reduced to the visits of its call sites, in which the loops of a program are seen.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/aggregate/step_anchor.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

/// A thread came to a call site, from another one.
struct Visit {
    std::uint32_t site = 0;
    std::uint64_t live = 0;  ///< bytes, after its first call
};

struct CallSite {
    trace::EventType type = trace::EventType::alloc;
    std::uint32_t stack = 0;
    std::uint32_t thread = 0;
    bool on_several_threads = false;
    std::uint32_t visits = 0;
    std::uint32_t earlier = 0;  ///< visits before begin_again()
    std::uint32_t first = 0;    ///< visit
    std::uint32_t last = 0;
    std::uint32_t first_calls = 0;  ///< allocations of the first visit
    std::uint64_t first_bytes = 0;
};

struct Block {
    static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t made = 0;  ///< visit
    std::uint32_t freed = never;
};

/// Whose step() a stack runs.
struct OptimizerStep {
    std::string function = {};  ///< "Adam.step"
    std::string caller = {};    ///< "train.py:51"
};

class CallCollector final : public trace::RecordSink {
  public:
    using RecordSink::on;

    /// Thrown to end the reading.
    struct Enough {};

    /// `until_marked`: no more is wanted where the program marks its steps. `look` is called when
    /// there are max_calls; false: no more is wanted.
    CallCollector(bool until_marked, std::function<bool(CallCollector&)> look)
        : until_marked_(until_marked), look_(std::move(look)) {}

    void on(const trace::StringDef& record) override { texts_[record.id] = record.text; }
    void on(const trace::PythonFrameDef& record) override { frames_[record.id] = record; }
    void on(const trace::StackDef& record) override;
    void on_freed(const trace::Event& free_requested) override { on(free_requested); }
    void on(const trace::Event& event) override;

    bool is_marked() const;
    /// Whether it only made what stays: the steps may follow.
    bool is_loading() const { return live_blocks_.size() * 5 >= blocks_.size() * 4; }
    /// What came before is no part of a loop.
    void begin_again();
    trace::StepAnchor::Level level() const { return level_; }
    const std::vector<Visit>& visits() const { return visits_; }
    const std::vector<CallSite>& sites() const { return sites_; }
    const std::vector<Block>& blocks() const { return blocks_; }
    /// Null: the stack runs no optimizer's step.
    const OptimizerStep* optimizer(std::uint32_t stack) const;
    /// The Python frames of a stack, outermost first; none if it is truncated.
    std::vector<const trace::PythonFrameDef*> outer_frames(std::uint32_t stack) const;
    /// Of a framework's tensors: the thread that allocated the first one.
    std::uint32_t first_thread() const { return first_thread_; }

  private:
    using Level = trace::StepAnchor::Level;

    void add(const trace::Event& event);
    void mark(std::uint32_t name);
    std::uint32_t last_visit() const {
        return visits_.empty() ? 0 : static_cast<std::uint32_t>(visits_.size() - 1);
    }
    /// Whether it begins a visit.
    bool call(const trace::Event& event);
    std::optional<OptimizerStep> optimizer_step(const trace::StackDef& stack) const;
    const trace::PythonFrameDef* python_frame(const trace::StackDef& stack, std::size_t i) const;
    const std::string& text(std::uint32_t id) const;

    std::unordered_map<std::uint32_t, std::string> texts_;
    std::unordered_map<std::uint32_t, trace::PythonFrameDef> frames_;
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> python_;  ///< outermost first
    std::unordered_map<std::uint32_t, OptimizerStep> optimizers_;
    std::vector<Visit> visits_;
    std::vector<CallSite> sites_;
    std::vector<Block> blocks_;
    std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  ///< of sites, by key
    std::unordered_map<std::uint64_t, std::uint32_t> earlier_;  ///< visits, by key
    std::unordered_map<std::uint32_t, std::uint32_t> last_of_thread_;
    std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> live_blocks_;
    std::uint64_t live_ = 0;
    std::uint32_t first_thread_ = 0;
    Level level_ = Level::driver;
    const bool until_marked_;
    const std::function<bool(CallCollector&)> look_;
    std::unordered_map<std::string, std::size_t> marks_;  ///< by name without its numbers
    std::size_t most_marks_ = 0;
};

}  // namespace memlab::report
