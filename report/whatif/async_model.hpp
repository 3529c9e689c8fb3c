// cudaMallocAsync: the driver's stream-ordered pool, used from one stream.
//
// Source: the CUDA programming guide (stream-ordered memory allocator: memory above the release
// threshold is released to the device when the stream, an event or the device is synchronized), and
// what a real pool reserved after each of 31,000 calls of a real program, with both thresholds
// (tests/gpu/py/driver_history.py): it takes memory in multiples of 32 MiB, grows in place, and
// packs allocations by 512 bytes.
//
// Not modelled: the driver's search order, which is not documented (best fit is used; requests up
// to 2 MiB have their own arena, as the measured curve suggests), reuse between streams, other
// pools of the process. A log does not record synchronizations: marks and scope ends are used
// instead.
#pragma once

#include <array>
#include <unordered_map>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

class AsyncModel final : public Model {
  public:
    /// `release_threshold`: bytes that stay reserved at a synchronization.
    AsyncModel(std::uint64_t capacity, std::uint64_t release_threshold);

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;
    void empty_cache() override { release(0); }
    void synchronize() override { release(threshold_); }

  private:
    static constexpr std::uint64_t chunk = std::uint64_t{32} << 20;
    static constexpr std::uint64_t granularity = 512;
    static constexpr std::uint64_t max_small = std::uint64_t{2} << 20;

    struct Arena {
        FreeRanges free;
        std::uint64_t end = 0;  ///< where it grows
    };
    struct LiveBlock {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
        bool small = false;
    };
    Arena& arena(bool small) { return arenas_[small ? 1 : 0]; }
    bool expand(Arena& arena, std::uint64_t size);
    void release(std::uint64_t keep);

    const std::uint64_t threshold_;
    std::array<Arena, 2> arenas_;
    std::unordered_map<std::uint32_t, LiveBlock> live_;
};

}  // namespace memlab::report::whatif
