// Plain CUDA, no cache: every allocation is a cudaMalloc, every free a cudaFree.
//
// Source: what cudaMalloc does to the device's memory in use, read after each of 8,000 calls of a
// real program (tests/gpu/py/driver_history.py): up to 1 MiB an allocation is cut, in units of 512
// bytes, from a chunk of 2 MiB that is released when empty; a larger one takes whole 2 MiB pages.
//
// Not modelled: the driver's separate chunks for different small sizes (a few MiB in all), the
// memory of a context itself, and the wait for the device in cudaFree.
#pragma once

#include <unordered_map>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

class PlainModel final : public Model {
  public:
    using Model::Model;

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;

  private:
    static constexpr std::uint64_t granularity = 512;
    static constexpr std::uint64_t max_small = std::uint64_t{1} << 20;

    struct LiveBlock {
        std::uint64_t address = 0;  ///< 0: whole pages
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
    };
    bool take_small(std::uint64_t size, std::uint64_t* address);
    void grow(std::uint64_t bytes);

    std::unordered_map<std::uint32_t, LiveBlock> live_;
    FreeRanges small_;
    std::uint64_t next_chunk_ = 2 * device_page;  ///< chunks are not adjacent, so never merge
};

}  // namespace memlab::report::whatif
