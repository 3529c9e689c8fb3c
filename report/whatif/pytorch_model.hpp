// PyTorch's caching allocator of one device.
//
// Source: c10/cuda/CUDACachingAllocator.cpp and the notes on memory management in PyTorch's
// documentation. Checked event by event against PyTorch 2.11 itself: its reserved bytes over whole
// training runs (tests/unit/whatif/check_pytorch_history.py says how exactly).
//
// Modelled: small and large pool, best fit per stream, splitting and merging, max_split_size,
// roundup_power2_divisions, garbage collection above a threshold of a limit, the release of cached
// memory before an allocation fails, expandable segments.
//
// Not modelled: private pools of CUDA graphs, tensors used on several streams (record_stream delays
// their reuse), peer access, the CPU side. A freed block is reusable at once, as on its own stream.
// A log of cudaMalloc has no streams: all allocations are then on one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

/// The allocator's settings, as PYTORCH_ALLOC_CONF spells them.
struct PyTorchSettings {
    static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

    std::uint64_t max_split_size = no_limit;     ///< bytes
    std::uint64_t roundup_power2_divisions = 0;  ///< 0: sizes are multiples of 512
    double garbage_collection_threshold = 0;     ///< of `allowed`; 0: none
    bool expandable_segments = false;
    /// Maximum of reserved bytes (set_per_process_memory_fraction).
    std::uint64_t allowed = no_limit;
};

/// Reads "max_split_size_mb:128,expandable_segments:True". False with `problem` set to one sentence
/// when a setting is unknown.
bool parse_pytorch_settings(std::string_view text, PyTorchSettings* settings, std::string* problem);

class PyTorchModel final : public Model {
    static constexpr std::uint64_t small_segment = std::uint64_t{2} << 20;
    static constexpr std::uint64_t large_segment = std::uint64_t{20} << 20;

  public:
    PyTorchModel(std::uint64_t capacity, const PyTorchSettings& settings)
        : Model(capacity), settings_(settings) {}

    /// The addresses that cudaMalloc returned, in order. Of free blocks of equal size the lowest is
    /// taken, so a run repeats exactly only with the same segment addresses. Without (further)
    /// addresses, segments are placed one after the other.
    void set_segment_addresses(std::vector<std::uint64_t> addresses) {
        segment_addresses_ = std::move(addresses);
    }

    bool allocate(std::uint32_t id, const Allocation& allocation) override;
    void free(std::uint32_t id) override;
    void empty_cache() override { release_cached(); }

  private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    struct Block {
        std::uint64_t stream = 0;
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::uint64_t requested = 0;
        std::uint64_t gc_base = 0;
        std::uint32_t previous = none;
        std::uint32_t next = none;
        bool small = false;
        bool allocated = false;
        bool mapped = true;
        bool expandable = false;

        bool is_split() const { return previous != none || next != none; }
    };
    /// Stream, size, address, index into blocks_.
    using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t>;
    /// Stream, address, index: of ranges without memory.
    using UnmappedKey = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;
    struct Pool {
        std::set<Key> free;
        std::set<UnmappedKey> unmapped;
        std::uint64_t searches = 0;  ///< the clock of PyTorch's garbage collection
    };
    struct Request {
        std::uint64_t size = 0;
        std::uint64_t segment = 0;
        std::uint64_t stream = 0;
        bool small = false;
    };

    Pool& pool(bool small) { return small ? small_ : large_; }
    Key free_key(std::uint32_t index) const;
    UnmappedKey unmapped_key(std::uint32_t index) const;
    void insert_free(std::uint32_t index);
    void erase_free(std::uint32_t index);
    std::uint32_t new_block(const Block& block);
    void drop_block(std::uint32_t index);

    std::uint64_t round_size(std::uint64_t requested) const;
    Request plan(const Allocation& allocation) const;
    std::uint32_t find_free(const Request& request);
    std::uint32_t grow(const Request& request);
    std::uint32_t grow_classic(const Request& request);
    bool collects_garbage() const;
    void collect_garbage();
    bool release_oversize(const Request& request);
    void release_cached();
    void release_pool(bool small);
    void release_segment(std::uint32_t index);
    /// Whether the block is a whole segment, which can be released when free.
    bool is_whole(std::uint32_t index) const {
        return !blocks_[index].is_split() && !blocks_[index].expandable;
    }
    std::uint32_t cut(std::uint32_t index, const Request& request);
    bool should_split(std::uint32_t index, const Request& request) const;
    std::uint64_t merge(std::uint32_t into, std::uint32_t other);
    FreeSpace free_space() const;
    bool may_reserve(std::uint64_t bytes) const;

    std::uint32_t grow_expandable(const Request& request);
    std::uint32_t find_expandable(const Request& request);
    bool can_hold(std::uint32_t index, std::uint64_t size) const;
    bool map(std::uint32_t index, std::uint64_t size);
    void unmap(std::uint32_t index);
    std::uint64_t chunk_size(bool small) const;
    std::uint64_t address_space(bool small) const;

    const PyTorchSettings settings_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> spare_blocks_;
    std::unordered_map<std::uint32_t, std::uint32_t> live_;  ///< allocation to block
    Pool small_;
    Pool large_;
    std::uint64_t next_address_ = device_page;
    std::vector<std::uint64_t> segment_addresses_;
    std::size_t segments_made_ = 0;
};

}  // namespace memlab::report::whatif
