// A simulated device for tests and replay: memory, a work queue with a clock that only the test
// advances, fences in that queue, and injected failures. Deterministic: the same calls give the
// same results, including addresses.
//
// It also checks the pool: violations of the contract of DeviceBackend, and accesses to memory that
// an earlier owner's work may still be using, are reported in problems().
//
// The memory never fragments: a segment, or a page of an expandable range, fits if the sum fits;
// segments and ranges get the lowest free address. Work items run in the order of submission, but
// only fences order one owner's work behind another's: the items stand for work on different
// streams.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "allocator/backend.hpp"

namespace memlab::allocator {

/// Thread-safety: every function may be called from any thread.
class SimulatedBackend : public DeviceBackend {
  public:
    static constexpr Address default_base = 0x7f0000000000;

    explicit SimulatedBackend(std::uint64_t total_bytes, Address base = default_base)
        : total_(total_bytes), base_(base) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override;
    BackendStatus segment_free(Address address, std::uint64_t bytes) override;
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override;
    BackendStatus range_release(Address base, std::uint64_t bytes) override;
    BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) override;
    BackendStatus pages_unmap(Address address, std::uint64_t bytes) override;
    std::uint64_t total_memory() const override { return total_; }
    std::uint64_t available_memory() const override;
    BackendStatus fence_record(Fence* fence) override;
    FenceState fence_query(Fence fence) override;
    BackendStatus fence_wait_device(Fence fence) override;
    bool ordered_behind(Fence fence) override;
    BackendStatus fence_wait_host(Fence fence) override;
    bool caller_needs_host_wait() const override;
    bool caller_never_waits() const override;
    void fence_release(Fence fence) override;
    BackendStatus wait_host() override;

    // --- the clock ---

    /// A point in the queue of work; the nth item submitted is at n.
    using Position = std::uint64_t;

    /// Submits work that touches no memory.
    Position submit();

    /// Submits work of `owner` (for example the block's id) on a range. A violation if the range is
    /// not in a segment, or if unfinished work of another owner on it is not ordered before this.
    Position access(std::uint64_t owner, Address address, std::uint64_t bytes);

    /// Completes everything up to `position`. The clock never goes back.
    void advance_to(Position position);
    void advance_all();

    Position submitted() const;
    Position completed() const;

    /// The effect of a host wait for an unfinished fence.
    enum class HostWait : std::uint8_t {
        advances,  ///< advances the clock to the fence
        blocks,    ///< blocks the thread until another one advances the clock
    };
    void set_host_wait(HostWait wait);

    /// Called by fence_wait_host before it waits, without any lock of the simulation, to simulate
    /// concurrent calls of other threads.
    void set_host_wait_hook(std::function<void()> hook);

    /// The same for segment_free.
    void set_segment_free_hook(std::function<void()> hook);

    /// Sets the result of caller_needs_host_wait; called without any lock of the simulation.
    void set_caller_needs_host_wait(std::function<bool()> answer);

    /// Sets the result of caller_never_waits. (Default: false.)
    void set_caller_never_waits(bool never);

    /// false: fence_record gives a real fence even when nothing is running. (Default: it gives 0.)
    void set_knows_idle(bool knows);

    /// true: ordered_behind() orders immediately, as while all work goes to one stream.
    void set_one_stream(bool one_stream);

    /// true: available_memory() tells. (Default: it is unknown.)
    void set_knows_available(bool knows);

    // --- failures ---

    enum class Call : std::uint8_t {
        segment_alloc,
        segment_free,
        fence_record,
        fence_wait_device,
        fence_wait_host,
        range_reserve,
        pages_map,
        pages_unmap,
    };
    /// The `nth` call from now (1: the next) to `call` does nothing and returns `status`.
    void fail(Call call, std::uint64_t nth, BackendStatus status);
    /// Cancels all failures that are still to come.
    void clear_failures();

    /// Sets the device's sticky error: from now on no work completes, fences are failed, and every
    /// other call returns `code`.
    void break_context(std::int32_t code);

    // --- statistics ---

    std::uint64_t calls(Call call) const;
    std::uint64_t queries() const;
    std::uint64_t used() const;
    std::uint64_t peak() const;
    std::uint64_t segments() const;
    std::uint64_t ranges() const;
    /// Bytes of ranges that have memory.
    std::uint64_t mapped() const;
    /// References to fences that the pool has not released.
    std::uint64_t fences() const;
    /// All violations so far, as sentences.
    std::vector<std::string> problems() const;

  private:
    struct FenceEntry {
        Position position = 0;
        std::uint64_t references = 0;
    };
    struct Access {
        Position position = 0;
        std::uint64_t owner = 0;
        Address begin = 0;
        Address end = 0;
    };
    static constexpr std::size_t call_kinds = 8;

    static void call_without_lock(std::unique_lock<std::mutex>& lock,
                                  const std::function<void()>& set);
    bool injected(Call call, BackendStatus* status);
    BackendStatus wait_for(std::unique_lock<std::mutex>& lock, Position position);
    Address lowest_gap(std::uint64_t bytes) const;
    bool has_memory(Address begin, Address end) const;
    bool inside_a_range(Address begin, std::uint64_t bytes) const;
    void finish_work_on(Address begin, std::uint64_t bytes);
    void complete_to(Position position);
    void problem(std::string text);
    const FenceEntry* known(Fence fence, const char* where);

    const std::uint64_t total_;
    bool knows_available_ = false;
    const Address base_;

    mutable std::mutex mutex_;
    std::condition_variable moved_;
    std::map<Address, std::uint64_t> segments_;
    std::map<Address, std::uint64_t> ranges_;
    std::set<Address> pages_;   ///< of ranges, those with memory
    std::set<Address> chunks_;  ///< where they begin
    std::uint64_t used_ = 0;
    std::uint64_t peak_ = 0;

    Position submitted_ = 0;
    Position completed_ = 0;
    Position ordered_ = 0;         ///< new work is ordered behind everything up to here
    std::deque<Access> accesses_;  ///< unfinished ones, in order
    std::map<Fence, FenceEntry> fences_;
    Fence last_fence_ = 0;
    std::uint64_t references_ = 0;

    HostWait host_wait_ = HostWait::advances;
    std::function<void()> hook_;
    std::function<void()> segment_free_hook_;
    std::function<bool()> needs_host_wait_;
    bool caller_never_waits_ = false;
    bool knows_idle_ = true;
    bool one_stream_ = false;
    bool broken_ = false;
    std::int32_t broken_code_ = 0;
    std::uint64_t calls_[call_kinds] = {};
    std::uint64_t queries_ = 0;
    std::map<std::uint64_t, BackendStatus> failures_[call_kinds];
    std::vector<std::string> problems_;
};

}  // namespace memlab::allocator
