#include "report/lines/stack_moments.hpp"

#include <algorithm>
#include <utility>

#include "trace/record_sink.hpp"

namespace memlab::report {

class StackMoments::Sink final : public trace::GenericSink<StackMoments::Sink>,
                                 private trace::LiveObserver {
  public:
    Sink(StackMoments& moments, trace::Aggregator& figures) : moments_(moments), figures_(figures) {
        figures.set_observer(this);
    }
    ~Sink() override { figures_.set_observer(nullptr); }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const trace::Event& event) {
        figures_.on(event);
        if (moments_.every_ != 0 && moments_.ends_.is_end(event, figures_)) {
            moments_.group_ = ++moments_.steps_ended_ / moments_.every_;
        }
    }
    void take(const trace::Checkpoint& checkpoint) {
        figures_.on(checkpoint);
        moments_.statistics_.clear();  // the figures are others now
        moments_.ends_.forget_numbers();
        moments_.has_gap_ = true;
        moments_.gap_end_ns_ = checkpoint.time_ns;
    }
    void take(const trace::OomEvent& oom) {
        figures_.on(oom);
        moments_.record(oom, figures_);
    }

  private:
    void allocated(std::uint32_t /*slot*/, const trace::Live& live,
                   const trace::Event& by) override {
        moments_.record(by, live.size, figures_);
    }

    StackMoments& moments_;
    trace::Aggregator& figures_;
};

StackMoments::StackMoments(const LineQuery& query, Wanted wanted, StepEnds ends)
    : columns_(select_columns(query)),
      every_(query.every),
      wanted_(std::move(wanted)),
      ends_(std::move(ends)) {}

LogSinkFactory StackMoments::sink_factory() {
    if (every_ != 0) {
        return {};
    }
    return
        [this](const std::string& log, trace::Aggregator& figures) { return follow(log, figures); };
}

std::unique_ptr<trace::RecordSink> StackMoments::follow(const std::string& log,
                                                        trace::Aggregator& figures) {
    log_ = log;
    groups_.clear();
    first_.clear();
    statistics_.clear();
    steps_ended_ = group_ = allocations_ = 0;
    has_gap_ = false;
    return std::make_unique<Sink>(*this, figures);
}

template <typename Event>
std::size_t StackMoments::find_slot(const Event& event, const trace::Aggregator& figures) {
    // The log has defined both, but the aggregator may have run out of host memory.
    if (event.stack >= figures.stacks().size() || event.device >= figures.devices().size() ||
        figures.devices()[event.device] == nullptr) {
        return none;
    }
    if (groups_.empty() || groups_.back().number != group_) {
        if (!groups_.empty()) {
            for (const Allocations& old : groups_.back().allocations) {
                first_[old.stack] = 0;
            }
        }
        groups_.push_back({.number = group_, .allocations = {}, .values = {}});
    }
    Group& group = groups_.back();
    if (event.stack >= first_.size()) {
        first_.resize(figures.stacks().size());
    }
    std::uint32_t* at = &first_[event.stack];
    while (*at != 0) {
        Allocations& known = group.allocations[*at - 1];
        if (known.device == event.device && known.kind == event.kind) {
            return *at - 1;
        }
        at = &known.next;
    }
    if (wanted_ && !wanted_(event.device, event.stack, event.kind)) {
        return none;
    }
    *at = static_cast<std::uint32_t>(group.allocations.size() + 1);
    group.allocations.push_back({.device = event.device, .stack = event.stack, .kind = event.kind});
    group.values.resize(group.values.size() + columns_.size());
    return group.allocations.size() - 1;
}

const std::uint64_t* StackMoments::statistic(const trace::DeviceTotals& device,
                                             std::size_t column) {
    if (device.info.index >= statistics_.size()) {
        statistics_.resize(std::size_t{device.info.index} + 1);
    }
    auto& known = statistics_[device.info.index];
    known.resize(columns_.size());
    if (known[column] == nullptr) {
        known[column] = find_statistic(device.pool.stats, columns_[column].statistic);
    }
    return known[column];
}

void StackMoments::record(const trace::Event& event, std::uint64_t size,
                          const trace::Aggregator& figures) {
    ++allocations_;
    const std::size_t slot = find_slot(event, figures);
    if (slot == none) {
        return;
    }
    Group& group = groups_.back();
    group.allocations[slot].latest = allocations_;
    const trace::DeviceTotals& device = *figures.devices()[event.device];
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        const LineColumn& column = columns_[i];
        std::uint64_t& value = group.values[slot * columns_.size() + i];
        if (column.source == LineColumn::Source::sum) {
            value += column.sum == LineColumn::Sum::count ? 1 : size;
            continue;
        }
        const std::uint64_t now = column.source == LineColumn::Source::curve
                                      ? device.curve(column.curve).current
                                      : *statistic(device, i);
        value = column.highest ? std::max(value, now) : now;
    }
}

void StackMoments::record(const trace::OomEvent& event, const trace::Aggregator& figures) {
    const std::size_t slot = find_slot(event, figures);
    if (slot != none) {
        ++groups_.back().allocations[slot].ooms;
    }
}

}  // namespace memlab::report
