// A model of plain CUDA's device memory: what a request takes, what a free gives back, and whether
// a request is served. Tests compare the pool and the simulated driver with it; it is itself
// compared with transcripts of a GPU (test_plain_cuda.cpp, tests/conformance/plain_memory.cpp).
//
// Memory is counted in pages of 2 MiB. Device memory of less than a page shares pages
// (shared_pages.hpp), larger requests and physical memory of cuMemCreate take whole pages of their
// own. Arrays are like device memory, of the size that their layout needs, in pages shared with
// other arrays only. Addresses are virtual: a request is served if the pages suffice, wherever they
// are, and a page goes back at once when the last that lies in it is freed, with cuMemFreeAsync
// when its stream has been synchronized.
//
// Not in the model, and seen on the same GPU: cuMemAllocAsync and the nodes of graphs take
// multiples of 32 MiB, a pool's go back when the host waits (above the release threshold) or when a
// request needs them, a graph's with cuDeviceGraphMemTrim or when a request needs them. A module
// with variables takes whole pages, one without takes none; streams and graphs take a page now and
// then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "tests/support/shared_pages.hpp"

namespace memlab::support {

/// One context's view of a device on which nobody else allocates.
/// Thread-safety: none; one thread at a time.
class PlainCuda {
  public:
    static constexpr std::uint64_t page_bytes = SharedPages::page_bytes;

    /// A device with so much free memory, of which the driver never gives the last `withheld`
    /// bytes: an H100 says that they are free and refuses its last page.
    explicit PlainCuda(std::uint64_t free_bytes, std::uint64_t withheld = 0)
        : free_bytes_(free_bytes), withheld_(withheld) {}

    /// cuMemAlloc of so many bytes, not 0. False: out of memory, and nothing has changed. The id is
    /// the caller's name for it, not in use.
    bool allocate(std::uint64_t id, std::uint64_t bytes);
    /// cuMemCreate of so many bytes, rounded up to pages.
    bool create(std::uint64_t id, std::uint64_t bytes);
    /// cuArrayCreate of rows of so many bytes; height and depth may be 0, as in its descriptor.
    bool create_array(std::uint64_t id, std::uint64_t row_bytes, std::uint64_t height,
                      std::uint64_t depth);
    /// The free of what one of them served; does nothing for another id.
    void free(std::uint64_t id);

    /// What cuMemGetInfo says is free.
    std::uint64_t free_bytes() const { return free_bytes_; }

    /// What an array of that shape takes, before it is rounded to pages or their steps: rows of 64
    /// bytes, in blocks of 8 to 128 rows and up to 32 slices.
    static constexpr std::uint64_t array_bytes(std::uint64_t row_bytes, std::uint64_t height,
                                               std::uint64_t depth) {
        const std::uint64_t rows = std::max<std::uint64_t>(height, 1);
        const std::uint64_t slices = std::max<std::uint64_t>(depth, 1);
        return round_up(row_bytes, 64) * round_up(rows, block_of(rows, 8, 128)) *
               round_up(slices, block_of(slices, 1, 32));
    }

  private:
    struct Live {
        std::uint64_t bytes = 0;
        SharedPages* shared = nullptr;  // none: whole pages
        SharedPages::Place place{};
    };

    // Whole units; the largest number of them that there is where the bytes need more.
    static constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
        return bytes > UINT64_MAX - (unit - 1) ? UINT64_MAX / unit * unit
                                               : (bytes + unit - 1) / unit * unit;
    }
    // The smallest power of two from `least` to `most` that is not less than the length, or `most`.
    static constexpr std::uint64_t block_of(std::uint64_t length, std::uint64_t least,
                                            std::uint64_t most) {
        std::uint64_t block = least;
        while (block < most && block < length) {
            block *= 2;
        }
        return block;
    }

    bool take_pages(std::uint64_t bytes);
    bool take_shared(std::uint64_t id, std::uint64_t bytes, SharedPages& shared);

    std::uint64_t free_bytes_;
    std::uint64_t withheld_;
    SharedPages of_memory_;
    SharedPages of_arrays_;
    std::unordered_map<std::uint64_t, Live> live_;
};

}  // namespace memlab::support
