// Plain CUDA, no cache: every allocation is a cudaMalloc, every free a cudaFree.
//
// Source: what cudaMalloc does to the device's memory in use, read after each of 8,000 calls of a
// real program (tests/gpu/py/driver_history.py): up to 1 MiB an allocation is cut, in units of 512
// bytes, from a chunk of 2 MiB that goes back when it is empty; a larger one takes whole 2 MiB
// pages of its own.
//
// Left out: the driver keeps chunks of different small sizes apart (a few MiB in all), and what a
// context takes for itself; cudaFree also waits for the device, which no time here includes.
#pragma once

#include <unordered_map>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

namespace memlab::whatif {

class PlainModel final : public Model {
  public:
    using Model::Model;

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;

  private:
    static constexpr std::uint64_t granularity = 512;
    static constexpr std::uint64_t max_small = std::uint64_t{1} << 20;

    struct Held {
        std::uint64_t address = 0;  ///< 0: pages of its own
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
    };
    bool take_small(std::uint64_t size, std::uint64_t* address);
    void grow(std::uint64_t bytes);

    std::unordered_map<std::uint32_t, Held> held_;
    FreeRanges small_;
    std::uint64_t next_chunk_ = 2 * device_page;  ///< chunks do not touch: they never merge
};

}  // namespace memlab::whatif
