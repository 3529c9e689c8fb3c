#include "tests/model_check/random_machine.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "allocator/size_policy.hpp"

namespace memlab::model_check {

using allocator::Address;
using allocator::AllocResult;
using allocator::BackendStatus;
using allocator::BlockInfo;
using allocator::FenceTiming;
using allocator::FreeResult;
using allocator::FreeSync;
using allocator::SimulatedBackend;
using allocator::Tag;
using allocator::testing::CheckingObserver;
using allocator::testing::mib;
using allocator::testing::Random;

namespace {

constexpr std::size_t all_checked_up_to = 64;

Knowledge random_knowledge(Random& random) {
    return static_cast<Knowledge>(random.below(3));
}

}  // namespace

/// Forwards to the checking observer and the additional one, and tells the device what comes and
/// goes.
class RandomMachine::Both final : public allocator::PoolObserver {
  public:
    Both(PoolObserver& first, CookieDevice& device) : first_(&first), device_(device) {}
    void set_first(PoolObserver& first) { first_ = &first; }
    void set_second(PoolObserver* second) { second_ = second; }

    void on_alloc(const BlockInfo& block, Tag tag) override {
        tell([&](PoolObserver& each) { each.on_alloc(block, tag); });
    }
    void on_free_requested(const BlockInfo& block, Tag tag) override {
        tell([&](PoolObserver& each) { each.on_free_requested(block, tag); });
    }
    void on_free_completed(const BlockInfo& block) override {
        tell([&](PoolObserver& each) { each.on_free_completed(block); });
    }
    void on_segment_alloc(Address segment, std::uint64_t size, Tag tag) override {
        device_.arrived(segment);
        tell([&](PoolObserver& each) { each.on_segment_alloc(segment, size, tag); });
    }
    void on_segment_free(Address segment, std::uint64_t size) override {
        tell([&](PoolObserver& each) { each.on_segment_free(segment, size); });
        device_.leaves(segment, size);
    }
    void on_segment_map(Address address, std::uint64_t bytes, Tag tag) override {
        device_.arrived(address);
        tell([&](PoolObserver& each) { each.on_segment_map(address, bytes, tag); });
    }
    void on_segment_unmap(Address address, std::uint64_t bytes) override {
        tell([&](PoolObserver& each) { each.on_segment_unmap(address, bytes); });
        device_.leaves(address, bytes);
    }
    void on_alloc_retry(std::uint64_t requested, Tag tag) override {
        tell([&](PoolObserver& each) { each.on_alloc_retry(requested, tag); });
    }
    void on_reclaim(std::uint64_t requested, Tag tag) override {
        tell([&](PoolObserver& each) { each.on_reclaim(requested, tag); });
    }
    void on_empty_cache() override {
        tell([](PoolObserver& each) { each.on_empty_cache(); });
    }
    void on_tick(std::uint64_t now_ns) override {
        tell([now_ns](PoolObserver& each) { each.on_tick(now_ns); });
    }
    void on_sync() override {
        tell([](PoolObserver& each) { each.on_sync(); });
    }

  private:
    template <class Tell>
    void tell(const Tell& tell_one) {
        tell_one(*first_);
        if (second_ != nullptr) {
            tell_one(*second_);
        }
    }

    PoolObserver* first_;
    PoolObserver* second_ = nullptr;
    CookieDevice& device_;
};

/// A device and its pool.
struct RandomMachine::Site {
    Site(Random& random, Planted planted, CookieDevice::Host& host)
        : options(allocator::testing::random_options(random)),
          device((8 + random.below(120)) * 2 * mib, 1 + random.below(CookieDevice::max_streams),
                 random_knowledge(random), planted, host),
          observer(std::make_unique<CheckingObserver>(options)),
          both(*observer, device),
          pool(std::make_unique<allocator::Pool>(options, device, &both)) {}

    const allocator::PoolOptions options;
    CookieDevice device;
    std::unique_ptr<CheckingObserver> observer;
    Both both;
    std::unique_ptr<allocator::Pool> pool;
    std::vector<Live> live;
    bool locked = false;         ///< a call parked with the pool's lock
    bool capture_ended = false;  ///< and the deferred frees have no fences yet
    bool in_flight = false;      ///< the newest submission has not returned
    std::uint64_t contexts = 0;
    std::size_t index = 0;

    /// What the program is told is free.
    std::uint64_t free_bytes() const {
        return device.total_memory() - device.used() + pool->reclaimable();
    }
    /// How much must be free for a request to be served for sure.
    std::uint64_t need(std::uint64_t bytes) const {
        const auto plan = allocator::SizePolicy(options).plan(bytes);
        return options.expandable ? allocator::whole_pages(std::max(plan->size, plan->unshared))
                                  : plan->segment;
    }
};

struct RandomMachine::Call {
    Site* site = nullptr;
    std::size_t fiber = Fibers::ended;
    std::function<void(Call&)> body;
    std::function<bool()> ready;
    bool locked = false;
    bool relies = true;
    bool done = false;
    std::uint64_t least_free = 0;  ///< what was said to be free while it ran, at least
};

RandomMachine::RandomMachine(std::uint64_t seed, Fibers& fibers, Planted planted,
                             MachineListener* listener)
    : random_(seed),
      fibers_(fibers),
      planted_(planted),
      listener_(listener),
      threads_(1 + random_.below(6)),
      looks_(random_.one_in(3)) {
    const std::uint64_t devices = 1 + random_.below(3);
    CookieDevice::Host& host = *this;
    for (std::uint64_t i = 0; i < devices; ++i) {
        sites_.push_back(std::make_unique<Site>(random_, planted, host));
    }
    for (std::size_t i = 0; i < sites_.size(); ++i) {
        sites_[i]->index = i;
        hear(*sites_[i]);
    }
    install(this);
}

void RandomMachine::hear(Site& site) {
    if (listener_ != nullptr) {
        site.both.set_second(
            &listener_->begins(site.index, site.options, site.device.total_memory()));
    }
}

RandomMachine::~RandomMachine() {
    install(nullptr);
}

void RandomMachine::found(const std::string& text) {
    if (problem_.empty()) {
        problem_ = text + " (step " + std::to_string(counts_.steps) + ")";
    }
}

std::string RandomMachine::run(std::uint64_t steps) {
    // Far more tries than steps: when only one thing can go on, it takes a few to find it.
    for (std::uint64_t i = 0; i < 100 * steps && counts_.steps < steps && problem_.empty(); ++i) {
        step();
    }
    if (counts_.steps < steps) {
        found("the program got stuck");
    }
    if (problem_.empty()) {
        end();
    }
    // What still waits must not outlive the pools.
    for (int round = 0; round < 100 && !waiting_.empty(); ++round) {
        for (const auto& site : sites_) {
            site->device.break_context();
        }
        ++notifications_;
        for (std::size_t i = 0; i < waiting_.size(); ++i) {
            if (can_go_on(*waiting_[i])) {
                go_on(i);
                break;
            }
        }
    }
    for (const auto& site : sites_) {
        counts_.work += site->device.executed();
    }
    return problem_;
}

// --- threads
// --------------------------------------------------------------------------------------

void RandomMachine::start(Site& site, std::function<void(Call&)> body) {
    ++counts_.calls;
    auto call = std::make_unique<Call>();
    call->site = &site;
    call->relies = !random_.one_in(4);
    call->body = std::move(body);
    if (looks_) {
        call->least_free = site.free_bytes();
    }
    const bool arriving = site.device.bytes_on_way(CookieDevice::Way::arriving) != 0;
    const bool leaving = site.device.bytes_on_way(CookieDevice::Way::leaving) != 0;
    running_ = call.get();
    call->fiber = fibers_.run([here = call.get()] {
        here->body(*here);
        here->done = true;
    });
    running_ = nullptr;
    if (call->done) {
        counts_.while_arriving += arriving ? 1 : 0;
        counts_.while_leaving += leaving ? 1 : 0;
    } else {
        ++counts_.waited;
        waiting_.push_back(std::move(call));
    }
    look_what_is_free(site);
}

/// What is said to be free, by calls that may lower it while others run.
void RandomMachine::look_what_is_free(Site& site) {
    if (!looks_ || site.locked) {
        return;
    }
    const std::uint64_t now = site.free_bytes();
    for (const auto& call : waiting_) {
        if (call->site == &site) {
            call->least_free = std::min(call->least_free, now);
        }
    }
}

bool RandomMachine::can_go_on(const Call& call) const {
    return (call.locked || !call.site->locked) && call.ready();
}

void RandomMachine::go_on(std::size_t waiting) {
    Call& call = *waiting_[waiting];
    running_ = &call;
    if (call.locked) {
        call.site->locked = false;
        call.locked = false;
    }
    fibers_.resume(call.fiber);
    running_ = nullptr;
    look_what_is_free(*call.site);
    if (call.done) {
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(waiting));
    }
}

void RandomMachine::wait_until(CookieDevice& device, bool locked, std::function<bool()> ready) {
    if (!fibers_.inside()) {
        device.run_all();
        return;
    }
    if (ready() && !random_.one_in(locked ? 4 : 2)) {
        return;
    }
    Call* const me = running_;
    me->ready = std::move(ready);
    me->locked = locked;
    me->site->locked = locked;
    fibers_.park();
    running_ = me;
}

bool RandomMachine::lock_is_held(CookieDevice&) {
    bool busy = false;
    if (fibers_.inside()) {
        running_->site->pool->try_find(0, &busy);
    }
    return busy;
}

bool RandomMachine::relies() {
    if (!fibers_.inside()) {
        return true;
    }
    wait_until(running_->site->device, false, [] { return true; });
    return running_->relies;
}

void RandomMachine::wait_for_notification() {
    Call* const me = running_;
    me->ready = [this, seen = notifications_] { return notifications_ != seen; };
    fibers_.park();
    running_ = me;
}

/// One thing that happens. What cannot happen now is not counted.
void RandomMachine::step() {
    Site& site = *sites_[random_.below(sites_.size())];
    if (site.device.broken() && !site.locked && random_.one_in(16)) {
        lose_context(site);
        return;
    }
    if (random_.one_in(3) && some_call_goes_on()) {
        return;
    }
    if (act(site)) {
        ++counts_.steps;
        check(site);
        return;
    }
    if (!some_call_goes_on() && site.device.step(random_.below(site.device.streams()))) {
        ++counts_.steps;
    }
}

bool RandomMachine::some_call_goes_on() {
    const std::size_t first = waiting_.empty() ? 0 : random_.below(waiting_.size());
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
        const std::size_t chosen = (first + i) % waiting_.size();
        if (can_go_on(*waiting_[chosen])) {
            Site& site = *waiting_[chosen]->site;
            go_on(chosen);
            ++counts_.steps;
            check(site);
            return true;
        }
    }
    return false;
}

// --- what the program does
// ------------------------------------------------------------------------

/// False when it was not possible.
bool RandomMachine::act(Site& site) {
    const std::uint64_t choice = random_.below(32);
    if (choice < 4) {
        return site.device.step(random_.below(site.device.streams()));
    }
    if (choice < 8) {
        if (site.live.empty()) {
            return false;
        }
        use(site, site.live[random_.below(site.live.size())]);
        return true;
    }
    if (site.locked || waiting_.size() >= threads_) {
        return false;  // this device's pool is locked, or every thread waits
    }
    if (choice < 19) {
        return allocate(site, allocator::testing::random_size(random_));
    }
    if (choice < 30) {
        return !site.live.empty() && free(site, random_.below(site.live.size()));
    }
    rarely(site);
    return true;
}

void RandomMachine::rarely(Site& site) {
    constexpr BackendStatus error{BackendStatus::Kind::error, CookieDevice::failure_code};
    constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory,
                                          allocator::out_of_memory_code};
    using Call = SimulatedBackend::Call;
    const std::uint64_t nth = 1 + random_.below(3);
    const std::uint64_t choice = random_.below(20);
    switch (looks_ && (choice < 7 || choice == 15) ? 19 : choice) {
        case 0:
            site.device.fail(Call::segment_alloc, nth, error);
            return;
        case 1:
        case 2:
            site.device.fail(Call::segment_alloc, nth, out_of_memory);
            return;
        case 3:
            site.device.fail(Call::pages_map, nth, random_.one_in(2) ? error : out_of_memory);
            return;
        case 4:
            site.device.fail(static_cast<CookieDevice::Failing>(random_.below(3)), nth);
            return;
        case 5:
        case 6:
            site.device.set_capturing(true);
            return;
        case 7:
        case 8:
        case 9:
            site.capture_ended = site.capture_ended || site.device.capturing();
            site.device.set_capturing(false);
            return;
        case 10:
        case 11:
            if (!site.device.capturing()) {
                site.capture_ended = false;
                start(site, [](RandomMachine::Call& call) { call.site->pool->fence_deferred(); });
            }
            return;
        case 12:
            if (!site.device.capturing()) {
                const bool wait = random_.one_in(2);
                start(site,
                      [wait](RandomMachine::Call& call) { call.site->pool->release_cached(wait); });
            }
            return;
        case 13:
        case 14:
            now_ns_ += random_.below(4000);
            start(site, [this](RandomMachine::Call& call) { call.site->pool->tick(now_ns_); });
            return;
        case 15:
            if (random_.one_in(8)) {
                site.device.break_context();
            }
            return;
        case 16:
            if (site.device.broken()) {
                lose_context(site);
            }
            return;
        default:
            allocate(site, 20 * mib + random_.below(100 * mib));
            return;
    }
}

bool RandomMachine::allocate(Site& site, std::uint64_t bytes) {
    if (site.device.capturing()) {
        return false;  // the driver serves it
    }
    start(site, [this, bytes, contexts = site.contexts](Call& call) {
        Site& here = *call.site;
        const AllocResult result = here.pool->allocate(bytes, random_.next());
        const bool promised = here.need(bytes) <= call.least_free;
        counts_.promised += promised ? 1 : 0;
        if (!result.status.ok()) {
            ++counts_.failures;
            if (promised) {
                found(std::to_string(bytes) + " bytes were refused while " +
                      std::to_string(call.least_free) + " were free");
            }
            const bool known = result.status.kind == BackendStatus::Kind::out_of_memory ||
                               result.status.code == CookieDevice::failure_code;
            if (!known) {
                found("an allocation failed with " + std::to_string(result.status.code));
            }
            return;
        }
        const auto held = here.pool->find(result.block.address);
        if (!held || held->id != result.block.id) {
            if (here.contexts == contexts) {
                found("an allocated block is not found");
            }
            return;  // its context was lost before the call returned
        }
        if (here.device.on_way(held->address, held->address + held->size)) {
            found("memory was handed out that is on its way");
        }
        here.live.push_back({result.block, 0, 0, 0});
        use(here, here.live.back());
    });
    return true;
}

/// Work on a block by its owner, whose own items are in order.
void RandomMachine::use(Site& site, Live& live) {
    if (site.in_flight) {
        finish_submission(site);
    }
    const std::size_t stream = random_.below(site.device.streams());
    CookieDevice::Work work{
        live.block.address, live.block.address + live.block.size, live.left, ++last_cookie_, {}};
    work.after[live.stream] = live.position;
    const bool returns = !random_.one_in(8);
    site.device.submit(stream, work, returns);
    site.in_flight = !returns;
    live.left = work.leaves;
    live.stream = stream;
    live.position = site.device.submitted(stream);
}

void RandomMachine::finish_submission(Site& site) {
    if (std::exchange(site.in_flight, false)) {
        site.device.tick();
    }
}

bool RandomMachine::free(Site& site, std::size_t index) {
    const Live live = site.live[index];
    site.live[index] = site.live.back();
    site.live.pop_back();
    const FenceTiming timing = site.device.capturing() ? FenceTiming::deferred
                               : random_.one_in(8)     ? FenceTiming::now_without_wait
                                                       : FenceTiming::now;
    const CookieDevice::Position submitted = site.device.submitted();
    start(site, [this, live, timing, submitted, contexts = site.contexts](Call& call) {
        Site& here = *call.site;
        const FreeSync sync = here.options.free_sync;
        const bool promised =
            timing == FenceTiming::now &&
            (sync == FreeSync::always || (sync == FreeSync::automatic && call.relies));
        const FreeResult result = here.pool->free(live.block.address, 0, timing);
        if (result.kind == FreeResult::Kind::refused && here.contexts == contexts &&
            result.status.code == CookieDevice::failure_code) {
            here.live.push_back(live);  // the program's as before
        } else if (result.kind != FreeResult::Kind::freed) {
            found("a live block could not be freed");
        } else if (!result.status.ok() && result.status.code != CookieDevice::failure_code &&
                   result.status.code != CookieDevice::capture_code) {
            found("a free failed with " + std::to_string(result.status.code));
        } else if (promised && result.status.ok() && here.contexts == contexts &&
                   !here.device.covers(submitted)) {
            found("a free returned before the work that it promises was done");
        }
    });
    return true;
}

/// A pool may outlive a context, and serve the next one. A recording knows only contexts with a
/// pool each: with a listener the pool is replaced too, when no call is in it.
void RandomMachine::lose_context(Site& site) {
    if (listener_ != nullptr &&
        std::any_of(waiting_.begin(), waiting_.end(),
                    [&site](const auto& call) { return call->site == &site; })) {
        return;
    }
    site.pool->abandon();
    site.observer->forget();
    site.device.reset();
    site.live.clear();
    site.in_flight = false;
    ++site.contexts;
    if (listener_ != nullptr) {
        site.observer = std::make_unique<CheckingObserver>(site.options);
        site.both.set_first(*site.observer);
        site.pool = std::make_unique<allocator::Pool>(site.options, site.device, &site.both);
        hear(site);
    }
}

// --- checks
// ---------------------------------------------------------------------------------------

void RandomMachine::check(Site& site) {
    if (site.locked) {
        return;
    }
    if (site.observer->in_use().size() > all_checked_up_to && counts_.steps % 16 != 0) {
        return;
    }
    ++counts_.checks;
    if (planted_ == Planted::invented_event && counts_.checks % 1000 == 0) {
        site.observer->on_sync();
    }
    if (const std::string problem = site.pool->validate(); !problem.empty()) {
        found("pool: " + problem);
    }
    if (!site.observer->problems().empty()) {
        found("events: " + site.observer->problems().front());
    }
    if (const std::string problem = site.device.problem(); !problem.empty()) {
        found("device: " + problem);
    }
    if (!site.observer->agrees(site.pool->stats())) {
        found("the statistics differ from the events");
    }
    const std::uint64_t on_way = site.device.bytes_on_way(CookieDevice::Way::arriving) +
                                 site.device.bytes_on_way(CookieDevice::Way::leaving);
    if (site.pool->stats().reserved_bytes.all.current + static_cast<std::int64_t>(on_way) !=
        static_cast<std::int64_t>(site.device.used())) {
        found("what is reserved and on its way is not what the device has given");
    }
    site.observer->take_events();
    if (listener_ != nullptr) {
        listener_->looked(site.index, site.pool->stats().reserved_bytes.all.current);
    }
}

void RandomMachine::end() {
    for (const auto& site : sites_) {
        finish_submission(*site);
        site->device.set_capturing(false);
        site->device.clear_failures();
    }
    for (bool moved = true; moved && !waiting_.empty();) {
        moved = false;
        for (const auto& site : sites_) {
            if (site->device.broken() && !site->locked) {
                lose_context(*site);
            }
            site->device.run_all();
        }
        for (std::size_t i = 0; i < waiting_.size() && !moved; ++i) {
            if (can_go_on(*waiting_[i])) {
                go_on(i);
                moved = true;
            }
        }
    }
    if (!waiting_.empty()) {
        found("a call never returns");
        return;
    }
    for (const auto& site : sites_) {
        end(*site);
    }
}

void RandomMachine::end(Site& site) {
    if (site.device.broken()) {
        lose_context(site);
    }
    finish_submission(site);
    for (const Live& live : site.live) {
        if (site.pool->free(live.block.address, 0).kind != FreeResult::Kind::freed) {
            found("a live block could not be freed at the end");
        }
    }
    site.pool->fence_deferred();
    site.device.run_all();
    site.pool->release_cached(true);
    check(site);
    if (site.device.fences() != 0) {
        found(std::to_string(site.device.fences()) + " fences were not released");
    }
    if (site.device.used() != 0 || site.pool->stats().reserved_bytes.all.current != 0) {
        found(std::to_string(site.device.used()) + " bytes were not given back, the pool has " +
              std::to_string(site.pool->stats().reserved_bytes.all.current) + ", of which active " +
              std::to_string(site.pool->stats().active_bytes.all.current));
    }
}

}  // namespace memlab::model_check
