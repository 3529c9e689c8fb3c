// A pool on a simulated device whose events are recorded as in a log, for tests of replay and
// what-if. Deterministic by seed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/pool.hpp"
#include "tests/support/simulated_backend.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/reading/log_reader.hpp"

namespace memlab::test {

inline constexpr std::uint64_t kib = std::uint64_t{1} << 10;
inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// Turns observer callbacks of a pool into events, as the live recorder does.
class EventObserver final : public allocator::PoolObserver {
  public:
    EventObserver(Records& records, std::uint32_t context) : records_(records), context_(context) {}

    void on_alloc(const allocator::BlockInfo& block, allocator::Tag /*tag*/) override {
        tell(EventType::alloc, block.address, block.requested, block.size);
    }
    void on_free_requested(const allocator::BlockInfo& block, allocator::Tag /*tag*/) override {
        tell(EventType::free_requested, block.address, block.requested, block.size);
    }
    void on_free_completed(const allocator::BlockInfo& block) override {
        tell(EventType::free_completed, block.address, block.requested, block.size);
    }
    void on_segment_alloc(allocator::Address segment, std::uint64_t size,
                          allocator::Tag /*tag*/) override {
        tell(EventType::segment_alloc, segment, 0, size);
    }
    void on_segment_free(allocator::Address segment, std::uint64_t size) override {
        tell(EventType::segment_free, segment, 0, size);
    }
    void on_segment_map(allocator::Address address, std::uint64_t bytes,
                        allocator::Tag /*tag*/) override {
        tell(EventType::segment_map, address, 0, bytes);
    }
    void on_segment_unmap(allocator::Address address, std::uint64_t bytes) override {
        tell(EventType::segment_unmap, address, 0, bytes);
    }
    void on_alloc_retry(std::uint64_t requested, allocator::Tag /*tag*/) override {
        tell(EventType::alloc_retry, 0, requested, 0);
    }
    void on_reclaim(std::uint64_t requested, allocator::Tag /*tag*/) override {
        tell(EventType::reclaim, 0, requested, 0);
    }
    void on_empty_cache() override { tell(EventType::empty_cache, 0, 0, 0); }
    void on_tick(std::uint64_t now_ns) override { tell(EventType::tick, 0, now_ns, 0); }
    void on_sync() override { tell(EventType::sync, 0, 0, 0); }

  private:
    void tell(EventType type, std::uint64_t address, std::uint64_t requested, std::uint64_t size) {
        Event event;
        event.type = type;
        event.origin = Origin::pool;
        event.context = context_;
        event.time_ns = 1000 * (records_.size() + 1);
        event.address = address;
        event.requested = requested;
        event.size = size;
        records_.emplace_back(event);
    }

    Records& records_;
    const std::uint32_t context_;
};

/// A random program of two contexts on one device, each with its pool, as records of a whole log.
class LivePools {
  public:
    LivePools(std::uint64_t seed, const allocator::PoolOptions& options, std::uint64_t total)
        : random_(seed), total_(total) {
        records_.emplace_back(ProcessInfo{.pid = 1, .executable = "/opt/app/train"});
        records_.emplace_back(DeviceInfo{0, "Some GPU", "GPU-0", total, 13000});
        records_.emplace_back(ContextInfo{1, 0, true});
        records_.emplace_back(ContextInfo{2, 0, false});
        for (std::uint32_t context = 1; context <= 2; ++context) {
            Side& side = sides_[context - 1];
            side.backend = std::make_unique<allocator::SimulatedBackend>(
                total / 2, allocator::SimulatedBackend::default_base + (context << 20) * mib);
            side.observer = std::make_unique<EventObserver>(records_, context);
            side.pool =
                std::make_unique<allocator::Pool>(options, *side.backend, side.observer.get());
        }
    }

    Records run(int steps) {
        for (int i = 0; i < steps; ++i) {
            step(sides_[random_.one_in(8) ? 1 : 0]);
        }
        records_.emplace_back(End{1000 * (records_.size() + 1), EndKind::exit, 0, ""});
        return std::move(records_);
    }

  private:
    struct Side {
        std::unique_ptr<allocator::SimulatedBackend> backend;
        std::unique_ptr<EventObserver> observer;
        std::unique_ptr<allocator::Pool> pool;
        std::vector<allocator::Address> live;
        std::uint64_t now_ns = 0;
    };

    std::uint64_t size() {
        switch (random_.below(4)) {
            case 0:
                return random_.below(2 * kib);
            case 1:
                return random_.below(2 * mib);
            case 2:
                return random_.below(12 * mib);
            default:
                return random_.below(total_ / 8);
        }
    }

    void step(Side& side) {
        side.backend->submit();
        switch (random_.below(12)) {
            case 0:
                side.backend->advance_all();
                break;
            case 1:
                side.backend->advance_to(
                    side.backend->completed() +
                    random_.below(side.backend->submitted() - side.backend->completed() + 1));
                break;
            case 2:
                if (random_.one_in(5)) {
                    side.pool->release_cached(random_.one_in(2));
                }
                break;
            case 3:
                side.now_ns += random_.below(4000);
                side.pool->tick(side.now_ns);
                break;
            case 4:
            case 5:
            case 6:
            case 7:
                if (!side.live.empty()) {
                    const std::size_t index = random_.below(side.live.size());
                    side.pool->free(side.live[index], 0,
                                    random_.one_in(6) ? allocator::FenceTiming::deferred
                                                      : allocator::FenceTiming::now);
                    side.live.erase(side.live.begin() + static_cast<std::ptrdiff_t>(index));
                }
                break;
            case 8:
                side.pool->fence_deferred();
                break;
            default: {
                const auto result = side.pool->allocate(size(), 0);
                if (result.status.ok()) {
                    side.live.push_back(result.block.address);
                }
                break;
            }
        }
    }

    Random random_;
    const std::uint64_t total_;
    Records records_;
    Side sides_[2];
};

/// Feeds the first `count` records as a log that was cut off there, or that is complete.
inline LogReadResult feed_prefix(const Records& records, std::size_t count, RecordSink& sink) {
    for (std::size_t i = 0; i < count; ++i) {
        feed(records[i], sink);
    }
    LogReadResult result;
    result.status = count == records.size() ? LogStatus::complete : LogStatus::cut_off;
    result.records = count;
    return result;
}

}  // namespace memlab::test
