// A model of the device for the fence protocol: streams that finish their own work in order and
// independently of each other, fences that capture the submitted work of all of them, waits that
// order all future work behind a fence; and, on the host, the rules of the work clock by which a
// fence need not be recorded.
//
// It replaces interpose/'s fences under the real pool. Every rule can be broken deliberately
// (Mutation), to show that the checker detects it.
//
// A stream has at most 255 items in total.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "allocator/backend.hpp"

namespace memlab::model_check {

inline constexpr std::size_t max_streams = 3;

/// A point in the device's work: the number of items per stream (a vector clock).
using Counts = std::array<std::uint8_t, max_streams>;

inline bool covers(const Counts& all, const Counts& part) {
    for (std::size_t i = 0; i < max_streams; ++i) {
        if (all[i] < part[i]) {
            return false;
        }
    }
    return true;
}

/// What the fences know about the device's work.
enum class Knowledge : std::uint8_t {
    nothing,  ///< every free records its own fence
    exact,    ///< whether the device is idle, and whether work was submitted since the last fence
    clock,    ///< the same, as far as the work clock shows it
};

/// A broken rule of the protocol.
enum class Mutation : std::uint8_t {
    none,
    no_fence,                ///< a free records nothing
    look_after_record,       ///< the clock is read after the fence is recorded
    tick_before_submit,      ///< the clock ticks before work is submitted
    under_way_unseen,        ///< the clock shows a time while a submission is under way
    unseen_stream,           ///< one stream's submissions do not tick
    released_is_complete,    ///< a released fence counts as completed
    one_stream_fence,        ///< a fence captures the first busy stream only
    any_stream_completes,    ///< a fence is complete when one stream has reached it
    out_of_order,            ///< a complete fence makes older ones complete last: newest first
    recorded_late,           ///< a fence is recorded when the next free comes
    endless_epoch,           ///< frees share a fence although work was submitted in between
    wait_orders_nothing,     ///< the device does not wait
    wait_orders_one_stream,  ///< the device waits for one stream's part of the fence
    host_waits_for_nothing,  ///< the host does not wait
    fence_in_capture,        ///< fences are recorded although a stream captures
    release_forgotten,       ///< a fence is not released
    released_twice,
    capture_end_forgotten,  ///< what was freed during a capture is not fenced after it
    // Of the single-stream optimization:
    second_orders_nothing,     ///< a second stream begins without waiting for anything
    second_orders_late,        ///< ... and waits only after its first work
    second_told_early,         ///< others may submit before the device waits
    second_told_late,          ///< frees count on one stream until after the device waits
    second_orders_everything,  ///< the device waits for more than frees have left behind
    second_in_capture,         ///< a capture begins with one stream known
    older_fence_ordered,       ///< an older free's fence takes the place of a newer one's
    streams_confused,          ///< two streams are taken for one
    destroyed_stays_known,     ///< a new stream with a destroyed one's handle is taken for it
    one_stream_unseen,         ///< a stream's submissions are ignored
    one_stream_is_idle,        ///< a free need not wait for the one stream
    // Of memory on its way:
    unmapping_forgotten,  ///< pages that are unmapped stay mapped
    full_for_long,        ///< once pages were unmapped, the next two mappings find no memory
};

/// The state of the single-stream optimization (interpose/driver/one_stream.hpp).
enum class Streams : std::uint8_t {
    none,      ///< nothing was submitted
    one,       ///< all work went to one
    gone,      ///< ... which was destroyed since
    ordering,  ///< a second one begins: the device must wait for the fences of earlier frees
    many,
};

/// The rules of the work clock (interpose/driver/work_clock.hpp) as a state machine. A submission
/// is under way from before its work exists, and ticks after it. A fence's time is read before it
/// is recorded. While the clock shows the time of a completed fence, all work that has ticked is
/// done; while it shows the time of the newest fence, that fence covers all work that has ticked.
class ModelClock {
  public:
    /// What the clock shows while a submission is under way: no time.
    static constexpr std::uint64_t none = ~std::uint64_t{0};

    void begin() { ++under_way_; }
    void tick() {
        under_way_ -= under_way_ != 0 ? 1 : 0;
        ++ticks_;
    }
    std::uint64_t now() const { return under_way_ == 0 ? ticks_ : none; }
    std::uint64_t ticks() const { return ticks_; }
    void completed(std::uint64_t time) {
        if (time != none) {
            idle_at_ = time > idle_at_ ? time : idle_at_;
        }
    }
    bool idle_since(std::uint64_t time) const { return time != none && time == idle_at_; }
    bool idle() const { return idle_since(now()); }

  private:
    std::uint64_t ticks_ = 0;
    std::uint64_t under_way_ = 0;
    std::uint64_t idle_at_ = 0;
};

class ModelDevice final : public allocator::DeviceBackend {
  public:
    using Address = allocator::Address;
    using BackendStatus = allocator::BackendStatus;
    using Fence = allocator::Fence;
    using FenceState = allocator::FenceState;

    static constexpr Address base = 0x7f0000000000;

    /// Callbacks to the checker, in which it may suspend the calling thread.
    struct Checker {
        virtual ~Checker() = default;
        /// Between reading the clock and recording the fence.
        virtual void between_look_and_record() = 0;
        /// The fence is not complete: park until it is.
        virtual void wait_on_host(Fence fence) = 0;
        virtual void recorded(Fence fence) = 0;
        /// Whether the caller of the free in progress relies on its wait.
        virtual bool caller_relies() = 0;
        /// Whether it is known without looking that it does not.
        virtual bool caller_is_known() = 0;
        /// A segment is freed, or pages are unmapped: park until all work submitted so far is
        /// finished.
        virtual void give_back(Address begin, std::uint64_t bytes) = 0;
        /// Memory was asked for, and has been given; 0 bytes: there is none. Park: the pool does
        /// not have the answer yet.
        virtual void arriving(Address begin, std::uint64_t bytes) = 0;
        virtual void broken(const char* rule) = 0;
    };

    /// `one_stream`: enables the single-stream optimization.
    ModelDevice(std::uint64_t total, Knowledge knowledge, bool one_stream, Mutation mutation,
                Checker& checker);

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override;
    BackendStatus segment_free(Address address, std::uint64_t bytes) override;
    BackendStatus range_reserve(Address* address, std::uint64_t bytes) override;
    BackendStatus range_release(Address address, std::uint64_t bytes) override;
    BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) override;
    BackendStatus pages_unmap(Address address, std::uint64_t bytes) override;
    BackendStatus fence_record(Fence* fence) override;
    FenceState fence_query(Fence fence) override;
    BackendStatus fence_wait_device(Fence fence) override;
    BackendStatus fence_wait_host(Fence fence) override;
    void fence_release(Fence fence) override;
    bool ordered_behind(Fence fence) override;
    bool caller_needs_host_wait() const override { return checker_.caller_relies(); }
    bool caller_never_waits() const override { return checker_.caller_is_known(); }

    // --- work ---

    struct Item {
        Address begin = 0;
        Address end = 0;
        std::uint64_t owner = 0;
        Counts after{};  ///< runs when these are done, and its stream's earlier items
    };
    void submit(std::size_t stream, Address begin, Address end, std::uint64_t owner);
    /// A submission to this stream begins; tick() ends it.
    void begin(std::size_t stream);
    void tick(std::size_t stream);

    // What a submitting call does first, in its steps.

    /// Looks at the stream; true: it is a second one, and the next two must follow.
    bool look_at(std::size_t stream);
    void order_second();
    void tell_second();
    void give_up_one_stream();
    /// The stream is destroyed; `next` is made and gets its handle.
    void replace(std::size_t stream, std::size_t next);
    bool gone(std::size_t stream) const { return gone_[stream]; }
    Streams streams() const { return streams_; }
    /// All work went to this one.
    bool is_known(std::size_t stream) const {
        return streams_ == Streams::one && !gone_[stream] && handle_of(stream) == known_;
    }
    /// The work covered by the newest fence whose block was freed immediately.
    const Counts& ordered() const { return ordered_; }

    /// A stream's oldest unfinished item can finish now.
    bool can_finish(std::size_t stream) const;
    void finish(std::size_t stream);
    void finish_up_to(const Counts& target);
    void finish_all() { finish_up_to(submitted_); }

    const Counts& submitted() const { return submitted_; }
    const Counts& completed() const { return completed_; }
    /// Future work runs after these.
    const Counts& barrier() const { return barrier_; }
    /// Unfinished, oldest first.
    const std::vector<Item>& items(std::size_t stream) const { return items_[stream]; }

    // --- captures and failures ---

    void set_capturing(bool capturing) { capturing_ = capturing; }
    bool capturing() const { return capturing_; }

    enum class Failing : std::uint8_t { record, wait_device, wait_host, segment_alloc };
    static constexpr std::uint8_t failures = 4;
    /// The next such call does nothing and returns an error.
    void fail_next(Failing what) { failing_[static_cast<std::size_t>(what)] = true; }
    bool fails(std::size_t what) const { return failing_[what]; }

    // --- statistics ---

    struct Record {
        Counts captured{};
        std::uint64_t time = 0;
        std::uint32_t references = 0;
        bool open = false;  ///< Mutation::recorded_late
    };
    /// Null when not held.
    const Record* record_of(Fence fence) const;
    Fence newest() const { return newest_; }
    std::size_t references() const { return references_; }
    const ModelClock& clock() const { return clock_; }
    const std::map<Address, std::uint64_t>& segments() const { return segments_; }
    bool has_page(Address page) const { return pages_.count(page) != 0; }
    std::size_t ranges() const { return ranges_.size(); }
    std::uint64_t used() const { return used_; }
    bool complete(const Record& record) const { return covers(completed_, record.captured); }
    /// Whether the work of some stream that the fence covers is complete.
    bool part_is_complete(const Record& record) const;

  private:
    bool failed(Failing what);
    std::uint64_t time_now() const;
    bool known_idle(std::uint64_t time) const;
    bool may_share(const Record& newest, std::uint64_t time) const;
    void close_late_records();
    std::size_t handle_of(std::size_t stream) const;

    const std::uint64_t total_;
    const Knowledge knowledge_;
    const Mutation mutation_;
    Checker& checker_;
    std::map<Address, std::uint64_t> segments_;
    std::map<Address, std::uint64_t> ranges_;
    std::set<Address> pages_;  ///< of ranges, those with memory
    std::uint64_t used_ = 0;
    unsigned full_for_ = 0;  ///< Mutation::full_for_long

    std::array<std::vector<Item>, max_streams> items_;
    Counts submitted_{};
    Counts completed_{};
    Counts barrier_{};
    ModelClock clock_;
    bool capturing_ = false;
    std::array<bool, failures> failing_{};

    Streams streams_;
    std::size_t known_ = 0;  ///< the one stream's handle
    Counts ordered_{};
    std::array<std::size_t, max_streams> handles_{};
    std::array<bool, max_streams> gone_{};

    std::map<Fence, Record> records_;
    Fence last_ = 0;
    Fence newest_ = 0;
    std::size_t references_ = 0;
};

}  // namespace memlab::model_check
