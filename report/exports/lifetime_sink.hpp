// Turns an event log into allocation lifetimes: the base of exporters of single events. Adds the
// frees that a log implies, as the aggregator does: memory that is allocated again had been freed,
// memory of a released segment or lost context is freed with it, a free by the driver is complete
// at once.
//
// A stretch of the recording begins with entered(); what comes after it is not looked at, but GPU
// work that is recorded later.
//
// Guarantees, on any log: an allocation is freed once and completed once, in this order, or lives
// to the end; live allocations of an address space have different addresses; the pool's segments do
// not overlap, nor do the blocks in them. Inconsistent events (a free of nothing) are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/exports/input.hpp"
#include "trace/aggregate/live_table.hpp"
#include "trace/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report::exports {

struct Allocation {
    std::uint64_t number = 0;  ///< 1, 2, ... in order of the log
    trace::Event event;        ///< of the call that made it
    std::uint64_t size = 0;    ///< bytes that serve it
    bool pooled = false;       ///< served by the pool
    bool in_segment = false;   ///< of the pool, and released with the segment
    bool pending = false;      ///< freed, but not yet safe to reuse
};

/// Thread-safety: none.
class LifetimeSink : public trace::RecordSink {
  public:
    explicit LifetimeSink(const Stretch& stretch = {}) : stretch_(stretch) {}

    using trace::RecordSink::on;
    void on(const trace::ProcessInfo& record) override;
    void on(const trace::ContextLost& record) override;
    void on(const trace::StringDef& record) override;
    /// Records are missing: what was live is ended, since nobody knows how long it lived.
    void on(const trace::Checkpoint& record) override;
    void on(const trace::Event& record) override;
    void on(const trace::OomEvent& record) override;
    void on(const trace::DeviceSample& record) override;
    void on(const trace::Work& record) override {
        if (!numbered_anew_) {
            worked(record);
        }
    }
    void on(const trace::End& record) override;

    /// The next record is of this time. False: it is after the stretch.
    bool reach(std::uint64_t time_ns);
    bool is_over() const { return over_; }
    /// After the last record, of which the log lacks none before the stretch.
    void finish();

  protected:
    /// The first moment of the stretch, which is now(): before all calls that are within().
    virtual void entered() {}
    /// Whether the call is about the stretch: what comes before it is told as well.
    bool within() const { return entered_; }
    const Stretch& stretch() const { return stretch_; }

    /// `by` is null when the free is implied: see above.
    virtual void allocated(const Allocation& allocation) = 0;
    virtual void freed(const Allocation& allocation, const trace::Event* by) = 0;
    virtual void completed(const Allocation& allocation, const trace::Event* by) = 0;
    /// `event` is the segment_alloc or segment_map. A range is added whole and may be removed in
    /// parts.
    virtual void segment_added(const trace::Event&) {}
    virtual void segment_removed(std::uint32_t /*device*/, std::uint64_t /*address*/,
                                 std::uint64_t /*size*/, bool /*mapped*/) {}
    /// A mark, scope_begin or scope_end.
    virtual void noted(const trace::Event&) {}
    virtual void failed(const trace::OomEvent&) {}
    virtual void sampled(const trace::DeviceSample&) {}
    /// GPU work, recorded after its end: its times may be before now().
    virtual void worked(const trace::Work&) {}

    /// Time of the latest record of the stretch; never decreases.
    std::uint64_t now() const { return now_; }
    /// now() as Unix time; saturates.
    std::uint64_t wall_ns() const {
        const std::uint64_t start = process_.start_wall_ns;
        return now_ > ~std::uint64_t{0} - start ? ~std::uint64_t{0} : start + now_;
    }
    /// By id; 0 is empty.
    const std::string& string(std::uint32_t id) const { return strings_[id]; }

    /// visit(allocation) for all live allocations, by address.
    template <typename Visit>
    void for_each_live(Visit visit) const {
        for (const auto& [key, allocation] : live_) {
            visit(allocation);
        }
    }

  private:
    using Key = std::pair<trace::AddressSpace, std::uint64_t>;
    using Live = std::map<Key, Allocation>;
    struct Range {
        std::uint64_t size = 0;
        std::uint32_t device = 0;
        std::uint32_t context = 0;
        bool mapped = false;
    };
    using Ranges = std::map<std::uint64_t, Range>;
    /// The pool's segments and blocks, or those of the program's allocators, which may lie in them.
    struct Level {
        trace::AddressSpace space;
        std::map<std::uint64_t, std::uint64_t> blocks = {};  ///< in segments: address to size
        Ranges segments = {};
    };

    /// Of what an event is about, which is no allocation of the driver's.
    Level& level_of(const trace::Event& event) {
        const bool suballocation = event.kind == trace::MemoryKind::suballocation;
        const auto space =
            suballocation ? trace::address_space(event) : trace::AddressSpace::pointer;
        const auto known = levels_.find(space);
        return known != levels_.end() ? known->second
                                      : levels_.emplace(space, Level{space}).first->second;
    }

    void allocate(const trace::Event& event);
    void free(const trace::Event& event);
    void complete(const trace::Event& event);
    void add_segment(const trace::Event& event);
    void free_segment(const trace::Event& event);
    void unmap(const trace::Event& event);
    /// Frees (unless pending) and completes an allocation.
    void end(Live::iterator at, const trace::Event* by);
    /// Ends the level's blocks that overlap a range.
    void end_blocks(Level& level, std::uint64_t address, std::uint64_t size);
    void remove(Level& level, Ranges::iterator segment);
    static Ranges::iterator first_segment_after(Level& level, std::uint64_t address);

    const Stretch stretch_;
    bool entered_ = false;
    bool over_ = false;
    bool numbered_anew_ = false;
    trace::ProcessInfo process_;
    std::vector<std::string> strings_{1};
    std::uint64_t now_ = 0;
    std::uint64_t count_ = 0;
    Live live_;
    std::map<trace::AddressSpace, Level> levels_;
};

/// A sentence on what the log lacks of a stretch, if `part` of it was read; empty: nothing.
std::string describe_missing(const trace::LogReadResult& read, trace::LogPart part,
                             const Stretch& stretch);

}  // namespace memlab::report::exports
