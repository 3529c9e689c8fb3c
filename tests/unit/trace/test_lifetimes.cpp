// What the aggregator tells of lifetimes: whatever the records, it agrees with its own tables.
#include <map>
#include <new>
#include <utility>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// Ranges that do not overlap; those that touch are one.
class Ranges {
  public:
    void add(std::uint64_t address, std::uint64_t size) {
        CHECK_FALSE(touches(address, size));
        by_address_[address] = size;
        for (auto at = by_address_.begin(); at != by_address_.end();) {
            const auto next = std::next(at);
            if (next != by_address_.end() && at->first + at->second == next->first) {
                at->second += next->second;
                by_address_.erase(next);
            } else {
                at = next;
            }
        }
    }
    void remove(std::uint64_t address, std::uint64_t size) {
        auto at = by_address_.upper_bound(address);
        REQUIRE(at != by_address_.begin());
        --at;
        const auto [begin, length] = *at;
        REQUIRE(address - begin <= length);
        REQUIRE(size <= length - (address - begin));
        by_address_.erase(at);
        if (address != begin) {
            by_address_[begin] = address - begin;
        }
        if (begin + length != address + size) {
            by_address_[address + size] = begin + length - (address + size);
        }
    }
    bool touches(std::uint64_t address, std::uint64_t size) const {
        for (const auto& [begin, length] : by_address_) {
            if (begin < address + size && address < begin + length) {
                return true;
            }
        }
        return false;
    }
    bool operator==(const Ranges&) const = default;

  private:
    std::map<std::uint64_t, std::uint64_t> by_address_;
};

/// Keeps what it is told, and checks the order.
class Listener final : public LiveObserver {
  public:
    explicit Listener(Aggregator& figures) : figures_(figures) { figures.set_observer(this); }

    void check() const {
        REQUIRE(figures_.live().size() == live_.size());
        figures_.live().for_each([&](std::uint32_t slot, const Live& live) {
            const auto at = live_.find(slot);
            REQUIRE(at != live_.end());
            CHECK(at->second.serial == live.serial);
            CHECK(at->second.pending == live.pending);
        });
        for (const auto& device : figures_.devices()) {
            if (device == nullptr) {
                continue;
            }
            Ranges expected;
            for (const PoolLayout::Range& range : device->pool.segments()) {
                expected.add(range.address, range.size);
            }
            const auto told = segments_.find(device->info.index);
            CHECK((told == segments_.end() ? Ranges() : told->second) == expected);
        }
    }

    std::map<LifeEnd::Cause, int> causes;
    int interruptions = 0;

  private:
    void allocated(std::uint32_t slot, const Live& live, const Event& by) override {
        CHECK(by.type == EventType::alloc);
        CHECK(by.address == live.address);
        CHECK(figures_.live().find(by.address, address_space(by)) == slot);
        CHECK(live_.emplace(slot, live).second);
    }
    void freed(std::uint32_t slot, const Live& live, const LifeEnd& end) override {
        const auto at = live_.find(slot);
        REQUIRE(at != live_.end());
        CHECK(at->second.serial == live.serial);
        CHECK_FALSE(at->second.pending);
        at->second.pending = true;
        check_cause(end);
        ++causes[end.cause];
    }
    void ended(std::uint32_t slot, const Live& live, const LifeEnd& end) override {
        const auto at = live_.find(slot);
        REQUIRE(at != live_.end());
        CHECK(at->second.serial == live.serial);
        CHECK(at->second.pending);
        check_cause(end);
        live_.erase(at);
    }
    void segment_added(const Event& by) override {
        const std::uint64_t size = std::min(by.size, ~std::uint64_t{0} - by.address);
        if (size != 0) {
            segments_[by.device].add(by.address, size);
        }
    }
    void segment_removed(std::uint32_t device, const PoolLayout::Range& range) override {
        segments_[device].remove(range.address, range.size);
        CHECK(figures_.devices()[device]->pool.blocks_in(range.address, range.size).empty());
    }
    void interrupted() override {
        live_.clear();
        segments_.clear();
        ++interruptions;
    }

    static void check_cause(const LifeEnd& end) {
        CHECK((end.event != nullptr) == (end.cause == LifeEnd::Cause::freed));
    }

    Aggregator& figures_;
    std::map<std::uint32_t, Live> live_;  ///< by slot
    std::map<std::uint32_t, Ranges> segments_;
};

void listen_to(const Records& records, std::map<LifeEnd::Cause, int>& causes) {
    Aggregator figures;
    Listener listener(figures);
    for (const AnyRecord& record : records) {
        feed(record, figures);
        listener.check();
    }
    for (const auto& [cause, count] : listener.causes) {
        causes[cause] += count;
    }
}

}  // namespace

TEST_CASE("What is told of lifetimes is what the tables hold, after every record") {
    std::map<LifeEnd::Cause, int> causes;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        listen_to(PlausibleRecords::make(seed, 400), causes);
        listen_to(WildRecords::make(seed, 400, true), causes);
    }
    CHECK(causes[LifeEnd::Cause::freed] > 100);
    CHECK(causes[LifeEnd::Cause::unseen] > 0);
    CHECK(causes[LifeEnd::Cause::context_lost] > 0);
}

TEST_CASE("A free that completed immediately is told like the two events") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        const Records records = PlausibleRecords::make(seed, 400);
        Aggregator figures;
        Listener listener(figures);
        feed(records, figures);
        listener.check();
        std::map<LifeEnd::Cause, int> expected;
        listen_to(records, expected);
        CHECK(listener.causes == expected);
    }
}

TEST_CASE("What is no block of a device's pool does not keep its segment") {
    Aggregator figures;
    Listener listener(figures);
    figures.on(DeviceInfo{});
    Event event{.type = EventType::segment_alloc, .origin = Origin::pool};
    event.address = 0x1000;
    event.size = 0x1000;
    figures.on(event);
    event.type = EventType::alloc;
    event.kind = MemoryKind::suballocation;  // of an allocator, which has devices of its own
    event.size = event.requested = 0x100;
    figures.on(event);
    event = {.type = EventType::segment_free, .address = 0x1000};
    figures.on(event);
    listener.check();
    CHECK(figures.live().size() == 1);
}

TEST_CASE("A checkpoint is told before it replaces everything") {
    Aggregator figures;
    feed(PlausibleRecords::make(3, 200, false), figures);
    Aggregator other;
    Listener listener(other);
    feed(PlausibleRecords::make(4, 200, false), other);
    figures.checkpoint(other);
    CHECK(listener.interruptions == 1);
    CHECK(other.live().size() == figures.live().size());
}

TEST_CASE("What an observer throws reaches the caller") {
    class Refuses final : public LiveObserver {
        void allocated(std::uint32_t, const Live&, const Event&) override {
            throw std::bad_alloc();
        }
    };
    Aggregator figures;
    Refuses refuses;
    figures.set_observer(&refuses);
    CHECK_THROWS_AS(feed(PlausibleRecords::make(1, 100), figures), std::bad_alloc);
    CHECK(figures.integrity().incomplete);
}
