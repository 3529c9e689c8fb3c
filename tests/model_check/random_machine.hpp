// A random program on a machine with several devices: threads that share the pools, streams,
// captures, out-of-memory, failing calls, lost contexts. The seed decides everything, including the
// scheduling of waiting threads.
//
// After every step (with more than 64 blocks, after every sixteenth) all checks run: validate(),
// the checking observer (tests/unit/allocator), the statistics against the events, and the devices'
// contents (cookie_device.hpp). While a call gets memory or gives it back, without the pool's lock,
// others run: such a state is checked like any other, and so is that no block is handed out whose
// memory is on its way, and that nobody is refused what was free all the time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/model_check/cookie_device.hpp"
#include "tests/model_check/fibers.hpp"
#include "tests/model_check/notification.hpp"
#include "tests/unit/allocator/random_program.hpp"

namespace memlab::model_check {

/// An additional observer of a machine's pools, beside the checking observer.
class MachineListener {
  public:
    MachineListener() = default;
    MachineListener(const MachineListener&) = delete;
    MachineListener& operator=(const MachineListener&) = delete;
    virtual ~MachineListener() = default;

    /// A device has a new context: the first one, or a replacement for a lost one. Returns the
    /// observer for its pool, valid until the next call for this device.
    virtual allocator::PoolObserver& begins(std::size_t device,
                                            const allocator::PoolOptions& options,
                                            std::uint64_t total_memory) = 0;
    /// Called with the pool's reserved bytes when the pool was checked.
    virtual void looked(std::size_t device, std::int64_t reserved_bytes) = 0;
};

class RandomMachine final : private CookieDevice::Host, private Notification {
  public:
    struct Counts {
        std::uint64_t steps = 0;
        std::uint64_t calls = 0;     ///< into pools
        std::uint64_t waited = 0;    ///< calls that waited while others ran
        std::uint64_t reused = 0;    ///< blocks allocated from memory used before
        std::uint64_t work = 0;      ///< items of work that ran and checked the contents
        std::uint64_t failures = 0;  ///< failed allocations
        std::uint64_t checks = 0;
        /// Calls that began and ended while another one got memory for the pool, or gave it back.
        std::uint64_t while_arriving = 0;
        std::uint64_t while_leaving = 0;
        std::uint64_t promised = 0;  ///< allocations of what was said to be free all the time
    };

    RandomMachine(std::uint64_t seed, Fibers& fibers, Planted planted = Planted::nothing,
                  MachineListener* listener = nullptr);
    ~RandomMachine() override;
    RandomMachine(const RandomMachine&) = delete;
    RandomMachine& operator=(const RandomMachine&) = delete;

    /// Empty when nothing was wrong.
    std::string run(std::uint64_t steps);
    const Counts& counts() const { return counts_; }

  private:
    struct Site;
    struct Call;
    class Both;
    struct Live {
        allocator::BlockInfo block;
        CookieDevice::Cookie left = 0;
        std::size_t stream = 0;
        std::uint64_t position = 0;
    };

    // CookieDevice::Host
    void wait_until(CookieDevice& device, bool locked, std::function<bool()> ready) override;
    bool lock_is_held(CookieDevice& device) override;
    bool relies() override;

    // Notification
    bool in_call() const override { return fibers_.inside(); }
    void wait_for_notification() override;
    void notified() override { ++notifications_; }

    void step();
    bool some_call_goes_on();
    bool act(Site& site);
    void rarely(Site& site);
    void start(Site& site, std::function<void(Call&)> body);
    void go_on(std::size_t waiting);
    bool can_go_on(const Call& call) const;
    void look_what_is_free(Site& site);
    bool allocate(Site& site, std::uint64_t bytes);
    bool free(Site& site, std::size_t index);
    void use(Site& site, Live& live);
    void hear(Site& site);
    void lose_context(Site& site);
    void finish_submission(Site& site);
    void check(Site& site);
    void end();
    void end(Site& site);
    void found(const std::string& text);

    allocator::testing::Random random_;
    Fibers& fibers_;
    const Planted planted_;
    MachineListener* const listener_;
    const std::size_t threads_;
    const bool looks_;  ///< asks all the time what is free; nothing fails then
    std::vector<std::unique_ptr<Site>> sites_;
    std::vector<std::unique_ptr<Call>> waiting_;
    Call* running_ = nullptr;
    CookieDevice::Cookie last_cookie_ = 0;
    std::uint64_t notifications_ = 0;
    std::uint64_t now_ns_ = 0;
    Counts counts_;
    std::string problem_;
};

}  // namespace memlab::model_check
