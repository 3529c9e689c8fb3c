// Executes the fence protocol: the real pool over the model device, one operation at a time, chosen
// by the explorer. Each step is checked; each state has a fingerprint, equal for states that differ
// only by a permutation of streams.
//
// What is checked:
//  - reuse: memory is reused only when all work of earlier owners on it is finished, or is ordered
//    before all future work; while all work goes to one stream, work is submitted only if all work
//    of earlier owners on its memory is finished or ordered before it;
//  - promise: a free that may block the host returns only when all work that was submitted before
//    the call is finished;
//  - lateness: a free waits for nothing that was submitted after it: its host wait does not, its
//    block is not still pending when all earlier work is finished, and no work waits for more than
//    a free before it;
//  - liveness: once the device is idle, every freed block is free again, every call has returned,
//    and every unused segment can be freed;
//  - memory on its way (Setting::on_way): while a call gets memory or gives it back, others run. No
//    block is handed out whose memory is arriving or leaving, what is reserved is what the device
//    has given less that, and no allocation is refused for which enough was free all the time;
//  - books: each fence is released once, none is recorded in a capture, and validate() is empty.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "allocator/pool.hpp"
#include "tests/model_check/fibers.hpp"
#include "tests/model_check/model_device.hpp"
#include "tests/model_check/notification.hpp"

namespace memlab::model_check {

enum class Step : std::uint8_t {
    submit,        ///< stream, block: work, from its start to its tick
    submit_begin,  ///< stream, block: all but the tick
    submit_end,    ///< stream: the tick
    submit_look,   ///< stream, block: the check for a second stream
    submit_next,   ///< stream: the next step of that submission, the last of which is its tick
    replace,       ///< stream, stream: the one is destroyed, the other made and has its handle
    finish,        ///< stream: its oldest work is done
    allocate,      ///< size: 0 a block, 1 a double one
    free,          ///< block
    free_go_on,    ///< block: as cudaFreeAsync, the host does not wait
    go_on,         ///< call: what a call waited for is there
    begin_capture,
    end_capture,   ///< the driver's part, and the gate's
    capture_over,  ///< what was freed meanwhile is fenced
    empty_cache,
    fail_next,  ///< which of the driver's answers
};

struct Operation {
    Step step = Step::submit;
    std::uint8_t first = 0;
    std::uint8_t second = 0;
};
std::string describe(const Operation& operation);

/// The layout of blocks.
enum class Layout : std::uint8_t {
    own_segments,  ///< a segment each: they go back to the driver one by one
    one_segment,   ///< quarters of one segment, which split and merge; also double blocks
    range,         ///< pages of an expandable range, which split and merge; also double blocks
    own_chunks,    ///< pages of an expandable range without sharing
};
constexpr bool has_pages(Layout layout) {
    return layout == Layout::range || layout == Layout::own_chunks;
}
constexpr bool has_doubles(Layout layout) {
    return layout == Layout::one_segment || layout == Layout::range;
}

struct Setting {
    allocator::FreeSync sync = allocator::FreeSync::never;
    Knowledge knowledge = Knowledge::clock;
    Layout layout = Layout::own_segments;
    std::size_t streams = max_streams;
    std::size_t blocks = 4;  ///< capacity of the device
    std::size_t live = 0;    ///< allocated at the beginning
    bool captures = false;
    bool failures = false;
    bool on_way = false;      ///< others run while a call gets memory, without the pool's lock
    bool one_stream = false;  ///< with the single-stream optimization
    bool relies = true;       ///< programs rely on the host wait of their frees
    bool known = false;       ///< caller_never_waits() knows that they do not
    std::size_t calls = 3;    ///< maximum number of concurrently waiting calls
    Mutation mutation = Mutation::none;
};
std::string describe(const Setting& setting);

/// What an operation reached, of calls while memory is on its way.
struct Reached {
    bool call_while_arriving =
        false;  ///< a call began and ended while another one's memory arrived
    bool call_while_leaving = false;
    bool surplus = false;          ///< memory arrived for a call that had found other memory
    bool waited_for_turn = false;  ///< a call waited while another one's memory arrived
    bool failed_in_turn = false;   ///< a call was refused while another one waited for its turn
};

enum class Flaw : std::uint8_t { none, reuse, promise, late, stuck, books, answer };
const char* name_of(Flaw flaw);

/// One run: a state, reached by operations from the setting's beginning.
class Protocol final : private ModelDevice::Checker,
                       private allocator::PoolObserver,
                       private Notification {
  public:
    Protocol(const Setting& setting, Fibers& fibers);
    ~Protocol() override;
    Protocol(const Protocol&) = delete;
    Protocol& operator=(const Protocol&) = delete;

    /// What the program, the device or another thread can do now.
    std::vector<Operation> possible() const;
    void apply(const Operation& operation);

    /// Equal for two states only if they are equivalent for all future operations.
    std::uint64_t fingerprint() const;

    /// The checks that every state must pass. The second one ends the run: it lets everything
    /// finish and checks the final state.
    void check();
    void check_ending();

    Flaw flaw() const { return flaw_; }
    /// Of the last operation.
    const Reached& reached() const { return reached_; }

    // For a run step by step:
    bool can_go_on(std::size_t call) const { return can_go_on(calls_[call]); }
    std::size_t live() const;
    std::size_t used() const { return device_.used() / unit(); }  ///< blocks, of the device
    std::size_t served() const { return served_; }                ///< allocations
    std::size_t refused() const { return refused_; }
    std::int64_t retries() const { return pool_->stats().num_alloc_retries; }
    const std::string& problem() const { return problem_; }

  private:
    static constexpr std::size_t max_blocks = 6;
    static constexpr std::uint8_t no_block = 0xff;

    enum class Where : std::uint8_t {
        nowhere,
        between,
        asked,
        host_wait,
        arriving,
        giving_back,
        notification
    };
    /// Why memory is given back.
    enum class Cause : std::uint8_t { none, reclaim, retry, empty_cache };
    struct Call {
        Step step = Step::free;
        std::uint8_t block = no_block;
        std::size_t fiber = Fibers::ended;
        Where where = Where::nowhere;
        allocator::Fence fence = 0;
        bool notified = false;
        bool promises = false;
        bool deferred = false;
        bool failed_record = false;
        bool in_capture = false;  ///< a capture was under way while the call ran
        bool syncing = false;     ///< an allocation makes sure of all that is pending
        std::uint64_t sync_end = 0;
        std::array<bool, max_blocks> leaving{};  ///< blocks that it frees or is about to free
        std::uint8_t now_leaving = no_block;
        std::array<bool, max_blocks> arriving{};  ///< got from the device, not the pool's yet
        std::uint8_t surpluses = 0;               ///< how often that went back
        std::uint8_t retries = 0;
        Cause cause = Cause::none;
        bool asked_device = false;       ///< for memory
        bool has_turn = false;           ///< to grow, while it waits for others
        std::uint8_t served = no_block;  ///< the block that it has yet to return
        std::size_t least_free = 0;      ///< units, while it ran
        std::uint64_t owner = 0;         ///< of the block that is freed
        std::uint64_t look = 0;          ///< at the work clock, before a record
        Counts at_look{};                ///< submitted then
        Counts submitted{};              ///< what there was when the call began
        Counts recorded{};               ///< submitted when its fence was recorded
        allocator::AllocResult got;
        allocator::FreeResult given;
    };
    enum class State : std::uint8_t { free, live, given };
    struct Slot {
        State state = State::free;
        bool deferred = false;
        std::uint8_t width = 1;
        std::uint64_t owner = 0;
        std::uint64_t order = 0;  ///< of its fence; before that, of its free
        allocator::Fence fence = 0;
        std::uint64_t freed = 0;  ///< state free: its place in the order of frees
        Counts due{};             ///< what the block may wait for at most
        bool has_due = false;
    };
    /// The next step of a submission with the check for a second stream.
    enum class Next : std::uint8_t { order, tell, submit, tick };
    struct InFlight {
        bool on = false;
        std::uint8_t block = 0;
        Next next = Next::tick;
    };

    // ModelDevice::Checker
    void between_look_and_record() override;
    void wait_on_host(allocator::Fence fence) override;
    void recorded(allocator::Fence fence) override;
    bool caller_relies() override;
    bool caller_is_known() override;
    void give_back(allocator::Address begin, std::uint64_t bytes) override;
    void arriving(allocator::Address begin, std::uint64_t bytes) override;
    void broken(const char* rule) override;

    // Notification
    bool in_call() const override { return fibers_.inside(); }
    void wait_for_notification() override;
    void notified() override;

    // allocator::PoolObserver
    void on_alloc(const allocator::BlockInfo& block, allocator::Tag tag) override;
    void on_free_requested(const allocator::BlockInfo& block, allocator::Tag tag) override;
    void on_free_completed(const allocator::BlockInfo& block) override;
    void on_segment_alloc(allocator::Address segment, std::uint64_t size,
                          allocator::Tag tag) override;
    void on_segment_free(allocator::Address segment, std::uint64_t size) override;
    void on_segment_map(allocator::Address address, std::uint64_t bytes,
                        allocator::Tag tag) override;
    void on_segment_unmap(allocator::Address address, std::uint64_t bytes) override;
    void on_alloc_retry(std::uint64_t requested, allocator::Tag tag) override;
    void on_reclaim(std::uint64_t requested, allocator::Tag tag) override;
    void on_empty_cache() override;
    void on_tick(std::uint64_t) override {}
    void on_sync() override;

    std::uint64_t unit() const;
    std::size_t slot_at(allocator::Address address) const;
    allocator::Address begin_of(std::size_t slot) const;
    void submit(std::size_t stream, std::size_t slot);
    std::size_t idle_stream() const;
    void look_at(std::size_t stream, std::size_t slot);
    void submit_next(std::size_t stream);
    void order_second();
    void start(Call call);
    void ended(std::size_t call);
    void allocated(const Call& call);
    void freed(const Call& call);
    void park(Where where);
    bool can_go_on(const Call& call) const;
    void go_on(std::size_t call);
    void settle_calls();
    static bool frees(const Call& call);
    bool lock_is_held() const;
    /// Calls visit(slot) for each slot of those addresses.
    template <class Visit>
    void for_each_slot(allocator::Address begin, std::uint64_t bytes, const Visit& visit) const;
    void leave(allocator::Address begin, std::uint64_t bytes);
    bool pool_is_locked() const;
    std::size_t free_units(const Call& call) const;
    void look_what_is_free();
    bool is_returned(std::size_t slot) const;
    std::size_t calls_waiting() const;
    void found(Flaw flaw, std::string text);
    class Writer;
    bool untouched(std::size_t slot) const;

    const Setting setting_;
    Fibers& fibers_;
    ModelDevice device_;
    std::unique_ptr<allocator::Pool> pool_;
    std::array<Slot, max_blocks> slots_;
    std::array<InFlight, max_streams> in_flight_;
    std::array<Call, 4> calls_;
    std::size_t running_ = 0;  ///< the call that a fiber is in
    bool capture_over_due_ = false;
    bool failed_before_ = false;
    std::uint64_t next_order_ = 0;
    std::uint64_t next_freed_ = 0;
    std::uint64_t reserved_ = 0;  ///< by the events
    std::uint64_t reserved_peak_ = 0;
    std::uint64_t active_ = 0;
    std::uint64_t active_peak_ = 0;
    Reached reached_;
    std::size_t served_ = 0;
    std::size_t refused_ = 0;
    Flaw flaw_ = Flaw::none;
    std::string problem_;
};

}  // namespace memlab::model_check
