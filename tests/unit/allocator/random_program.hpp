// A random program on a small device. The checking observer checks every event, the simulated
// device every access, validate() the pool's structures, and the program keeps its own list of
// blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/random.hpp"

namespace memlab::allocator::testing {

inline PoolOptions random_options(Random& random) {
    PoolOptions options;
    options.free_sync = static_cast<FreeSync>(random.below(3));
    options.trim_after_ns = random.one_in(2) ? 0 : 1 + random.below(3000);
    options.trim_backoff = random.one_in(2);
    if (random.one_in(3)) {
        options.expandable = true;
        options.expandable_range = random.one_in(2) ? 0 : (1 + random.below(40)) * 2 * mib;
        options.packed_share = random.one_in(2) ? 1 : static_cast<double>(random.below(6)) / 10;
        options.unmaps_per_hold = random.one_in(3) ? PoolOptions::no_limit : 1 + random.below(8);
        options.segments_per_hold = random.one_in(3) ? PoolOptions::no_limit : 1 + random.below(4);
    }
    switch (random.below(8)) {
        case 5:
            options.expandable = false;
            options.max_split_size = 20 * mib << random.below(2);
            options.max_non_split_rounding = 24 * mib;
            break;
        case 6:
            options.garbage_collection_threshold =
                0.25 + 0.125 * static_cast<double>(random.below(6));
            options.total_memory = random.one_in(2) ? 0 : 100 * mib;
            break;
        case 7:
            for (std::uint32_t& divisions : options.roundup_power2_divisions) {
                divisions = (1U << random.below(6)) & ~1U;
            }
            break;
        case 0:
            options.coarse_alignment = options.rounding;
            options.fragmented_rounding = 0;
            break;
        case 1:
            options.rounding = 4096;
            options.coarse_alignment = 4096ULL << random.below(6);
            break;
        case 2:
            options.small_size = 256 * kib;
            options.medium_size = 4 * mib;
            options.medium_segment = 8 * mib;
            options.large_rounding = 4 * mib;
            options.fragmented_rounding = 12 * mib;
            break;
        default:
            break;
    }
    return options;
}

class Program {
  public:
    explicit Program(std::uint64_t seed)
        : random_(seed),
          options_(random_options(random_)),
          world_((8 + random_.below(100)) * 2 * mib, options_) {
        world_.backend.set_knows_idle(!random_.one_in(3));
    }

    /// Empty when nothing was wrong.
    std::string run(int steps) {
        for (int i = 0; i < steps; ++i) {
            if (std::string problem = step(); !problem.empty()) {
                return problem + " (step " + std::to_string(i) + ")";
            }
            if (i % 16 == 0 || !world_.observer.problems().empty()) {
                if (std::string problem = check(); !problem.empty()) {
                    return problem + " (step " + std::to_string(i) + ")";
                }
            }
        }
        world_.backend.clear_failures();
        for (const BlockInfo& block : live_) {
            if (world_.pool.free(block.address, 0).kind != FreeResult::Kind::freed) {
                return "the end: a live block could not be freed";
            }
        }
        std::string problem = world_.problem_at_end();
        if (problem.find("segments were not freed") != std::string::npos &&
            world_.reserved() == 0 && lost_segments_) {
            return {};  // the backend refused them: forgotten, as promised
        }
        return problem;
    }

    /// The events so far.
    const std::vector<Seen>& events() const { return world_.observer.events(); }
    const PoolOptions& options() const { return options_; }
    std::uint64_t total() const { return world_.backend.total_memory(); }

  private:
    std::string step() {
        switch (random_.below(16)) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
            case 5:
                return allocate(random_size(random_));
            case 6:
            case 7:
            case 8:
            case 9:
            case 10:
                return free_one();
            case 11:
                return use_one();
            case 12:
                world_.backend.advance_to(
                    world_.backend.completed() +
                    random_.below(1 + world_.backend.submitted() - world_.backend.completed()));
                return {};
            case 13:
                return look();
            case 14:
                return rarely();
            default:
                if (random_.one_in(2)) {
                    now_ns_ += random_.below(1000);
                    world_.pool.tick(now_ns_);
                    return {};
                }
                return wrong_free();
        }
    }

    std::string allocate(std::uint64_t bytes) {
        const std::uint64_t tag = random_.next();
        const AllocResult result = world_.pool.allocate(bytes, tag);
        if (!result.status.ok()) {
            return result.status.code == 2 || result.status.code == injected_code
                       ? ""
                       : "an allocation failed with " + std::to_string(result.status.code);
        }
        const BlockInfo& block = result.block;
        const Seen last = world_.observer.events().back();
        if (last != Seen{Seen::What::alloc, block.address, block.size, bytes, tag}) {
            return "the last event of an allocation is not the allocation";
        }
        if (block.size < bytes || block.requested != bytes) {
            return "a block is smaller than what was asked for";
        }
        // The new owner writes immediately: a violation if earlier work is not ordered before.
        world_.backend.access(block.id, block.address, block.size);
        live_.push_back(block);
        return {};
    }

    std::string free_one() {
        if (live_.empty()) {
            return {};
        }
        const std::size_t index = random_.below(live_.size());
        const BlockInfo block = live_[index];
        live_[index] = live_.back();
        live_.pop_back();
        const FenceTiming timing = capturing_          ? FenceTiming::deferred
                                   : random_.one_in(8) ? FenceTiming::now_without_wait
                                                       : FenceTiming::now;
        const FreeResult result = world_.pool.free(block.address, 0, timing);
        if (result.kind == FreeResult::Kind::refused && result.status.code == injected_code) {
            live_.push_back(block);
            return {};
        }
        if (result.kind != FreeResult::Kind::freed) {
            return "a live block could not be freed";
        }
        if (!result.status.ok() && result.status.code != injected_code) {
            return "a free failed with " + std::to_string(result.status.code);
        }
        // The promise to the host: when the free returns, the memory's work is done.
        const bool promised = options_.free_sync != FreeSync::never && timing == FenceTiming::now;
        if (promised && result.status.ok() &&
            world_.backend.completed() != world_.backend.submitted()) {
            return "a free returned before the device was done";
        }
        return {};
    }

    std::string use_one() {
        if (!live_.empty()) {
            const BlockInfo& block = live_[random_.below(live_.size())];
            world_.backend.access(block.id, block.address, block.size);
        }
        return {};
    }

    std::string look() {
        if (live_.empty()) {
            return {};
        }
        const BlockInfo& block = live_[random_.below(live_.size())];
        const auto found = world_.pool.find(block.address + random_.below(block.size));
        if (!found || found->id != block.id || found->address != block.address ||
            found->size != block.size || found->segment != block.segment) {
            return "a live block was not found by an address inside it";
        }
        const Address anywhere =
            SimulatedBackend::default_base - 2 * mib + random_.below(260 * mib);
        const auto other = world_.pool.find(anywhere);
        for (const BlockInfo& each : live_) {
            const bool inside = anywhere - each.address < each.size;
            if (inside != (other && other->id == each.id)) {
                return "find disagrees with the list of live blocks";
            }
        }
        return world_.pool.owns(block.address) ? "" : "a live block's memory is not owned";
    }

    std::string wrong_free() {
        if (live_.empty()) {
            return {};
        }
        const BlockInfo& block = live_[random_.below(live_.size())];
        const Address interior = block.address + 1 + random_.below(block.size - 1);
        if (world_.pool.free(interior, 0).kind != FreeResult::Kind::invalid) {
            return "an interior pointer was freed";
        }
        if (world_.pool.free(SimulatedBackend::default_base - 512, 0).kind !=
            FreeResult::Kind::not_ours) {
            return "a foreign pointer was freed";
        }
        return {};
    }

    std::string rarely() {
        constexpr BackendStatus error{BackendStatus::Kind::error, injected_code};
        constexpr BackendStatus not_now{BackendStatus::Kind::not_now, injected_code};
        constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory, 2};
        const std::uint64_t nth = 1 + random_.below(3);
        switch (random_.below(17)) {
            case 0:
                world_.backend.fail(SimulatedBackend::Call::segment_alloc, nth, error);
                return {};
            case 1:
            case 2:
                world_.backend.fail(SimulatedBackend::Call::segment_alloc, nth, out_of_memory);
                return {};
            case 3:
                world_.backend.fail(SimulatedBackend::Call::fence_record, nth,
                                    random_.one_in(2) ? error : not_now);
                return {};
            case 4:
                world_.backend.fail(SimulatedBackend::Call::fence_wait_host, nth, error);
                return {};
            case 5:
            case 6:
                world_.backend.fail(SimulatedBackend::Call::fence_wait_device, nth, error);
                return {};
            case 7:
                if (random_.one_in(8)) {
                    world_.backend.fail(SimulatedBackend::Call::segment_free, nth, error);
                    lost_segments_ = true;
                }
                return {};
            case 8:
                capturing_ = true;
                return {};
            case 9:
            case 10:
                capturing_ = false;
                world_.pool.fence_deferred();
                return {};
            case 11:
                world_.pool.release_cached(random_.one_in(2));
                return {};
            case 12: {
                const AllocResult impossible = world_.pool.allocate(
                    std::numeric_limits<std::uint64_t>::max() - random_.below(2 * mib - 1), 0);
                return impossible.status.kind == BackendStatus::Kind::out_of_memory
                           ? ""
                           : "an impossible size was not out of memory";
            }
            case 13:
                world_.backend.fail(SimulatedBackend::Call::pages_map, nth,
                                    random_.one_in(3) ? error : out_of_memory);
                return {};
            case 14:
                if (random_.one_in(20)) {
                    world_.backend.fail(SimulatedBackend::Call::range_reserve, nth, error);
                }
                return {};
            case 15:
                world_.backend.fail(SimulatedBackend::Call::pages_unmap, nth, error);
                return {};
            default:
                return allocate(20 * mib + random_.below(100 * mib));
        }
    }

    std::string check() const {
        if (std::string problem = world_.problem(); !problem.empty()) {
            return problem;
        }
        std::size_t live = 0;
        for (const auto& entry : world_.observer.in_use()) {
            live += entry.second.live ? 1 : 0;
        }
        return live == live_.size() ? "" : "the events tell of other live blocks";
    }

    static constexpr std::int32_t injected_code = 719;

    Random random_;
    const PoolOptions options_;
    Fixture world_;
    std::vector<BlockInfo> live_;
    std::uint64_t now_ns_ = 0;
    bool capturing_ = false;
    bool lost_segments_ = false;
};

}  // namespace memlab::allocator::testing
