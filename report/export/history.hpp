// An event log as allocations with a beginning and an end: what formats of single events are made
// of. It knows what a log leaves unsaid, as the aggregator does: memory that is handed out anew was
// freed, memory in a segment that goes or in a context that is lost goes with it, a free of the
// driver's is complete at once.
//
// Guarantees, on any log: an allocation is freed once and completed once, in this order, or lives
// to the end; no two live at one address of a space; the pool's blocks in segments do not overlap,
// nor do its segments. What does not fit (a free of nothing) is passed over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trace/aggregate/live_table.hpp"
#include "trace/record_sink.hpp"

namespace memlab::exports {

struct Allocation {
    std::uint64_t number = 0;  ///< 1, 2, ... in order of the log
    trace::Event event;        ///< of the call that made it
    std::uint64_t size = 0;    ///< bytes that serve it
    bool pooled = false;       ///< served by the pool
    bool in_segment = false;   ///< of the pool, and goes with it
    bool pending = false;      ///< freed, and not yet safe to use again
};

/// Thread-safety: none.
class History : public trace::RecordSink {
  public:
    using trace::RecordSink::on;
    void on(const trace::ProcessInfo& record) override;
    void on(const trace::ContextLost& record) override;
    void on(const trace::StringDef& record) override;
    void on(const trace::Event& record) override;
    void on(const trace::OomEvent& record) override;
    void on(const trace::DeviceSample& record) override;
    void on(const trace::Work& record) override { worked(record); }
    void on(const trace::End& record) override;

  protected:
    /// `by` is null where no call did it: see above.
    virtual void allocated(const Allocation& allocation) = 0;
    virtual void freed(const Allocation& allocation, const trace::Event* by) = 0;
    virtual void completed(const Allocation& allocation, const trace::Event* by) = 0;
    /// `event` is the segment_alloc or segment_map. A range comes whole and may go in pieces.
    virtual void segment_added(const trace::Event&) {}
    virtual void segment_removed(std::uint32_t /*device*/, std::uint64_t /*address*/,
                                 std::uint64_t /*size*/, bool /*mapped*/) {}
    /// A mark, or the begin or end of a scope.
    virtual void noted(const trace::Event&) {}
    virtual void failed(const trace::OomEvent&) {}
    virtual void sampled(const trace::DeviceSample&) {}
    /// Work of the GPU, told when it is over: its times may lie before now().
    virtual void worked(const trace::Work&) {}

    /// Of the latest record; never decreases.
    std::uint64_t now() const { return now_; }
    /// The same by the wall clock: Unix time, or the largest number where there is none so large.
    std::uint64_t wall_ns() const {
        const std::uint64_t start = process_.start_wall_ns;
        return now_ > ~std::uint64_t{0} - start ? ~std::uint64_t{0} : start + now_;
    }
    /// By id; 0 is empty.
    const std::string& string(std::uint32_t id) const { return strings_[id]; }

    /// visit(allocation) for all that live, by address.
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

    void allocate(const trace::Event& event);
    void free(const trace::Event& event);
    void complete(const trace::Event& event);
    void add_segment(const trace::Event& event);
    void free_segment(const trace::Event& event);
    void unmap(const trace::Event& event);
    /// Ends what lives there, however far it is.
    void end(Live::iterator at, const trace::Event* by);
    /// Ends the pool's blocks in a range.
    void vacate(std::uint64_t address, std::uint64_t size);
    void remove(Ranges::iterator segment);
    Ranges::iterator first_in(std::uint64_t address);

    trace::ProcessInfo process_;
    std::vector<std::string> strings_{1};
    std::uint64_t now_ = 0;
    std::uint64_t count_ = 0;
    Live live_;
    std::map<std::uint64_t, std::uint64_t> blocks_;  ///< the pool's in segments: address to size
    Ranges segments_;
};

}  // namespace memlab::exports
