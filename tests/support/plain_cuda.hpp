// A model of plain CUDA's device memory: what a request takes, what a free gives back, and whether
// a request is served. Tests compare the pool and the simulated driver with it.
//
// Memory is counted in pages of 2 MiB. Device memory of up to 1 MiB shares pages at steps of 512 B;
// larger requests, and physical memory of cuMemCreate, take whole pages of their own. Addresses are
// virtual: a request is served if the pages suffice, wherever they are, and a page goes back when
// the last that lies in it is freed.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

namespace memlab::support {

/// Thread-safety: none; one thread at a time.
class PlainCuda {
  public:
    static constexpr std::uint64_t page_bytes = 2ULL << 20;
    /// The most that shares pages.
    static constexpr std::uint64_t small_bytes = 1ULL << 20;
    static constexpr std::uint64_t small_step = 512;

    /// A device, or context, with so much free memory: of the device's, without what contexts take.
    explicit PlainCuda(std::uint64_t free_bytes) : free_bytes_(free_bytes) {}

    /// cuMemAlloc of so many bytes. False: out of memory, and nothing has changed. The id is the
    /// caller's name for it, not in use.
    bool allocate(std::uint64_t id, std::uint64_t bytes);
    /// cuMemCreate; also an array, or what else takes whole pages.
    bool create(std::uint64_t id, std::uint64_t bytes);
    /// The free of what allocate() or create() served; does nothing for another id. Memory that
    /// cuMemFreeAsync frees goes back with its stream's synchronization.
    void free(std::uint64_t id);

    /// What cuMemGetInfo says is free.
    std::uint64_t free_bytes() const { return free_bytes_; }

  private:
    struct Page {
        std::map<std::uint64_t, std::uint64_t> free;  // offset, length
    };
    struct Live {
        std::uint64_t bytes;  // as taken, of a page or of the device
        std::uint64_t page;   // its number; none: whole pages
        std::uint64_t offset;
    };
    static constexpr std::uint64_t none = UINT64_MAX;

    static bool take(Page& page, std::uint64_t bytes, std::uint64_t& offset);

    std::uint64_t free_bytes_;
    std::uint64_t next_page_ = 0;
    std::map<std::uint64_t, Page> pages_;  // that small memory shares, by number
    std::unordered_map<std::uint64_t, Live> live_;
};

}  // namespace memlab::support
