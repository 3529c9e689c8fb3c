// A device whose memory has contents. Each stream runs its work in order, concurrently to the
// others; each item of work checks that the memory still has the value (cookie) that its owner
// wrote last, and writes a new one. So premature reuse, double allocation and invalid memory are
// detected by the contents, independently of the pool's state.
//
// The memory comes from a SimulatedBackend. A call that gets memory has its answer when it begins,
// one that gives memory back does so when it ends, and others run in between. Fences are events
// over all streams, as on the real device, with a configurable knowledge of idleness
// (model_device.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/model_check/model_device.hpp"
#include "tests/support/simulated_backend.hpp"

namespace memlab::model_check {

/// Deliberate faults, which the tests must detect.
enum class Planted : std::uint8_t {
    nothing,
    no_fence,
    early_fence,        ///< complete when any stream has reached it
    endless_epoch,      ///< frees share a fence although work was submitted in between
    unordered_device,   ///< a device wait does not order
    hasty_give_back,    ///< memory is freed while work uses it
    hasty_host,         ///< the host does not wait for fences
    release_forgotten,  ///< every 100th fence is not released
    invented_event,     ///< the observer gets an event that did not happen
};

/// Thread-safety: none; calls that wait park the fiber through the host.
class CookieDevice final : public allocator::DeviceBackend {
  public:
    using Address = allocator::Address;
    using BackendStatus = allocator::BackendStatus;
    using Fence = allocator::Fence;
    using FenceState = allocator::FenceState;
    using Cookie = std::uint64_t;

    static constexpr std::size_t max_streams = 8;
    using Position = std::array<std::uint64_t, max_streams>;

    /// The program's side of a call that waits.
    struct Host {
        virtual ~Host() = default;
        /// Returns when `ready` holds. `locked`: the pool's lock is held meanwhile.
        virtual void wait_until(CookieDevice& device, bool locked, std::function<bool()> ready) = 0;
        /// Whether the pool's lock is held by the call in progress.
        virtual bool lock_is_held(CookieDevice& device) = 0;
        /// Whether the caller of the free in progress relies on its wait.
        virtual bool relies() = 0;
    };

    CookieDevice(std::uint64_t total, std::size_t streams, Knowledge knowledge, Planted planted,
                 Host& host);

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override;
    BackendStatus segment_free(Address address, std::uint64_t bytes) override;
    std::uint64_t total_memory() const override { return memory_->total_memory(); }
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override;
    BackendStatus range_release(Address base, std::uint64_t bytes) override;
    BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) override;
    BackendStatus pages_unmap(Address address, std::uint64_t bytes) override;
    BackendStatus fence_record(Fence* fence) override;
    FenceState fence_query(Fence fence) override;
    BackendStatus fence_wait_device(Fence fence) override;
    BackendStatus fence_wait_host(Fence fence) override;
    void fence_release(Fence fence) override;
    bool caller_needs_host_wait() const override { return host_.relies(); }

    // --- work ---

    struct Work {
        Address begin = 0;
        Address end = 0;
        Cookie expects = 0;  ///< 0: any value
        Cookie leaves = 0;
        Position after{};
    };
    /// Submits work. It runs after `after`, its stream's earlier work and the fences of earlier
    /// device waits. `ticks`: the submission has returned and the work clock has ticked.
    void submit(std::size_t stream, const Work& work, bool ticks = true);
    void begin() { clock_.begin(); }
    void tick() { clock_.tick(); }
    /// Runs a stream's oldest work if it can run now.
    bool step(std::size_t stream);
    void run_all();
    bool done(std::size_t stream, std::uint64_t position) const {
        return completed_[stream] >= position;
    }
    std::uint64_t submitted(std::size_t stream) const { return submitted_[stream]; }
    const Position& submitted() const { return submitted_; }
    bool covers(const Position& position) const;
    std::size_t streams() const { return streams_; }
    std::size_t unfinished() const;

    // --- context and failures ---

    void set_capturing(bool capturing) { capturing_ = capturing; }
    bool capturing() const { return capturing_; }
    /// The context's sticky error: nothing that is unfinished ever completes.
    void break_context() { broken_ = true; }
    bool broken() const { return broken_; }
    /// Replaces the context: no memory, no work, no fences.
    void reset();

    enum class Failing : std::uint8_t { record, wait_device, wait_host };
    /// The nth such call from now does nothing and returns an error.
    void fail(Failing what, std::uint64_t nth) { failing_[static_cast<std::size_t>(what)] = nth; }
    /// As SimulatedBackend::fail.
    void fail(allocator::SimulatedBackend::Call call, std::uint64_t nth, BackendStatus status) {
        memory_->fail(call, nth, status);
    }
    void clear_failures();

    // --- memory on its way ---

    /// The device counts it as used, and it is not the pool's: from the call that gets it until the
    /// pool takes it, and from the decision to give it back to the end of the call that does.
    enum class Way : std::uint8_t { arriving, leaving };
    /// The pool has taken it.
    void arrived(Address begin) { passing_.erase(begin); }
    /// The pool has decided to give it back.
    void leaves(Address begin, std::uint64_t bytes) { passing_[begin] = {bytes, Way::leaving}; }
    std::uint64_t bytes_on_way(Way way) const;
    bool on_way(Address begin, Address end) const;

    // --- statistics ---

    std::uint64_t used() const { return memory_->used(); }
    std::size_t fences() const { return references_; }
    std::uint64_t executed() const { return executed_; }
    /// The first problem; empty if there is none.
    std::string problem() const;

    static constexpr std::int32_t failure_code = 719;
    static constexpr std::int32_t capture_code = 900;

  private:
    struct Run {
        Address end = 0;
        Cookie cookie = 0;
    };
    struct Record {
        Position captured{};
        std::uint64_t time = 0;
        std::uint64_t references = 0;
    };

    bool failed(Failing what);
    bool others_run(std::function<bool()> ready);
    bool give_back(Address address, std::uint64_t bytes);
    bool known_idle(std::uint64_t time) const;
    bool may_share(const Record& newest, std::uint64_t time) const;
    void execute(const Work& work);
    void split_at(Address address);
    void fill(Address begin, Address end, Cookie cookie);
    void clear(Address begin, Address end);
    Position uses_of(Address begin, Address end) const;
    void run_up_to(const Position& position);
    void found(std::string text);

    const std::size_t streams_;
    const Knowledge knowledge_;
    const Planted planted_;
    Host& host_;
    const std::uint64_t total_;
    std::unique_ptr<allocator::SimulatedBackend> memory_;
    std::uint64_t contexts_ = 0;       ///< number of earlier contexts
    std::map<Address, Run> contents_;  ///< of all memory
    struct Passing {
        std::uint64_t bytes = 0;
        Way way = Way::arriving;
    };
    std::map<Address, Passing> passing_;

    std::array<std::deque<Work>, max_streams> work_;
    Position submitted_{};
    Position completed_{};
    Position ordered_{};
    ModelClock clock_;
    bool capturing_ = false;
    bool broken_ = false;
    std::array<std::uint64_t, 3> failing_{};
    std::map<Fence, Record> records_;
    Fence last_ = 0;
    Fence newest_ = 0;
    std::size_t references_ = 0;
    std::uint64_t released_ = 0;
    std::uint64_t executed_ = 0;
    std::string problem_;
};

}  // namespace memlab::model_check
