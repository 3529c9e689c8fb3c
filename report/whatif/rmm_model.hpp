// RMM's pool_memory_resource: best fit over coalesced blocks of a few large cudaMallocs.
//
// Source: rapidsai/rmm, cpp/src/mr/detail/pool_memory_resource_impl.cpp and
// coalescing_free_list.hpp (2026): sizes are multiples of 256; without a maximum the pool grows by
// the larger of the request and its own size (it doubles) and, when that fails, tries half as much
// again and again; with a maximum it grows by the larger of the request and half of what remains,
// and releases entirely free upstream blocks when that is enough. Otherwise it never releases
// memory. Blocks of different upstream allocations do not merge.
//
// Not modelled: a free list per stream (a stream takes from other lists, after waiting for them,
// before the pool grows: the peak differs only by fragmentation between lists).
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

struct RmmSettings {
    std::uint64_t initial = 0;  ///< bytes; taken at the first allocation
    std::optional<std::uint64_t> maximum;
};

class RmmModel final : public Model {
  public:
    RmmModel(std::uint64_t capacity, const RmmSettings& settings)
        : Model(capacity), settings_(settings) {}

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;

  private:
    static constexpr std::uint64_t alignment = 256;

    struct LiveBlock {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
    };
    std::uint64_t size_to_grow(std::uint64_t size) const;
    bool from_upstream(std::uint64_t bytes);
    bool expand(std::uint64_t size);
    void reclaim(std::uint64_t size);

    const RmmSettings settings_;
    bool initialized_ = false;
    std::uint64_t pool_size_ = 0;
    std::map<std::uint64_t, std::uint64_t> upstream_;  ///< address to size
    FreeRanges free_;
    std::unordered_map<std::uint32_t, LiveBlock> live_;
    std::uint64_t next_address_ = device_page;
};

}  // namespace memlab::report::whatif
