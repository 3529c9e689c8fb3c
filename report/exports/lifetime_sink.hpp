// Tells exporters of single events what the aggregator decides on: when memory begins and ends. An
// allocation is freed once and completed once, in this order, or lives to the end.
//
// A stretch of the recording begins with entered(); what comes after it is ignored, except GPU
// work that is recorded later.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "report/exports/input.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report::exports {

struct Allocation {
    std::uint64_t number = 0;  ///< rises from one to the next; no other has it
    trace::Event event;        ///< of the call that made it
    std::uint64_t size = 0;    ///< bytes that serve it
    bool pooled = false;       ///< served by a pool
    bool pending = false;      ///< freed, but not yet safe to reuse
};

/// Thread-safety: none.
class LifetimeSink : public trace::GenericSink<LifetimeSink> {
  public:
    explicit LifetimeSink(const Stretch& stretch = {}) : stretch_(stretch) {
        figures_.set_observer(&observer_);
    }

    template <typename Record>
    void take(const Record& record) {
        if (numbered_anew_) {
            return;
        }
        if constexpr (std::same_as<Record, trace::Checkpoint>) {
            // Its numbers are others: what is live at the end of the stretch keeps those it has.
            numbered_anew_ = over_;
            if (!over_) {
                figures_.on(record);
                reach(record.time_ns);
            }
        } else if constexpr (std::same_as<Record, trace::Work>) {
            if (!over_) {
                figures_.on(record);
            }
            worked(record);
        } else {
            if constexpr (requires { record.time_ns; }) {
                if (!reach(record.time_ns)) {
                    return;
                }
            }
            figures_.on(record);
            taken(record);
        }
    }

    bool is_over() const { return over_; }
    /// After the last record, of which the log lacks none before the stretch.
    void finish();

  protected:
    /// The first moment of the stretch, which is now(): before all calls that are within().
    virtual void entered() {}
    /// Whether the call is about the stretch: what comes before it is told as well.
    bool within() const { return entered_; }
    const Stretch& stretch() const { return stretch_; }

    /// The figures are those with it.
    virtual void allocated(const Allocation& allocation) = 0;
    /// `by` is null where no record says what freed it. The figures are those of before, here and
    /// in completed().
    virtual void freed(const Allocation& allocation, const trace::Event* by) = 0;
    virtual void completed(const Allocation& allocation, const trace::Event* by) = 0;
    /// A range is added whole and may be removed in parts.
    virtual void segment_added(const trace::Event& /*by*/) {}
    virtual void segment_removed(std::uint32_t /*device*/,
                                 const trace::PoolLayout::Range& /*range*/) {}
    /// Records are missing: what was live has been ended, since nobody knows how long it lived.
    /// What the records after the gap begin with is not told of.
    virtual void interrupted() {}
    /// A mark, scope_begin or scope_end.
    virtual void noted(const trace::Event&) {}
    virtual void failed(const trace::OomEvent&) {}
    /// GPU work, recorded after its end: its times may be before now().
    virtual void worked(const trace::Work&) {}

    /// Time of the latest record of the stretch; never decreases.
    std::uint64_t now() const { return now_; }
    /// now() as Unix time; saturates.
    std::uint64_t wall_ns() const {
        const std::uint64_t start = figures_.process().start_wall_ns;
        return now_ > ~std::uint64_t{0} - start ? ~std::uint64_t{0} : start + now_;
    }
    /// By id; 0 is empty.
    const std::string& string(std::uint32_t id) const { return figures_.string(id); }
    const trace::Aggregator& figures() const { return figures_; }

    /// visit(allocation) for all live allocations, by address.
    template <typename Visit>
    void for_each_live(Visit visit) const {
        for (const Allocation& allocation : live()) {
            visit(allocation);
        }
    }

  private:
    /// Passes on what the aggregator tells, but of what it has from a checkpoint.
    class Observer final : public trace::LiveObserver {
      public:
        explicit Observer(LifetimeSink& to) : to_(to) {}

      private:
        void allocated(std::uint32_t slot, const trace::Live& live,
                       const trace::Event& by) override;
        void freed(std::uint32_t slot, const trace::Live& live, const trace::LifeEnd& end) override;
        void ended(std::uint32_t slot, const trace::Live& live, const trace::LifeEnd& end) override;
        void segment_added(const trace::Event& by) override { to_.segment_added(by); }
        void segment_removed(std::uint32_t device, const trace::PoolLayout::Range& range) override {
            to_.segment_removed(device, range);
        }
        void interrupted() override;

        LifetimeSink& to_;
    };

    /// The next record is of this time. False: it is after the stretch.
    bool reach(std::uint64_t time_ns);
    template <typename Record>
    void taken(const Record& record) {
        if constexpr (std::same_as<Record, trace::Event>) {
            if (record.type == trace::EventType::mark ||
                record.type == trace::EventType::scope_begin ||
                record.type == trace::EventType::scope_end) {
                noted(record);
            }
        } else if constexpr (std::same_as<Record, trace::OomEvent>) {
            failed(record);
        } else if constexpr (std::same_as<Record, trace::AggregateState>) {
            figures_.live().for_each([this](std::uint32_t, const trace::Live& live) {
                restored_ = std::max(restored_, live.serial);
            });
        }
    }

    bool is_told(const trace::Live& live) const { return live.serial > restored_; }
    Allocation describe(std::uint32_t slot, const trace::Live& live) const;
    std::vector<Allocation> live() const;

    const Stretch stretch_;
    bool entered_ = false;
    bool over_ = false;
    bool numbered_anew_ = false;
    std::uint64_t now_ = 0;
    std::uint64_t restored_ = 0;  ///< serial of the latest allocation that a checkpoint brought
    std::vector<std::uint64_t> streams_;  ///< by slot of the live table
    Observer observer_{*this};
    trace::Aggregator figures_;
};

/// A sentence on what the log lacks of a stretch, if `part` of it was read; empty: nothing.
std::string describe_missing(const trace::LogReadResult& read, trace::LogPart part,
                             const Stretch& stretch);

}  // namespace memlab::report::exports
