// A stand-in for libc10_cuda.so: a caching allocator that cuts the driver's allocations, or memory
// that it maps, into blocks of multiples of 512 bytes, and tells libc10.so of each.
//
//   MEMLAB_OTHER_REPORTS   tells the place of its own description of a block, not the block's
//   MEMLAB_OTHER_TOTALS    tells totals in another order
//   MEMLAB_OTHER_SUMS      tells totals that are not of these blocks
//   MEMLAB_OTHER_DEVICES   another number for CUDA's devices
//   MEMLAB_OTHER_FAILURES  tells a failure's sizes in another order
//   MEMLAB_OTHER_FUNCTION  tells of blocks by a function of another name
#include <cuda.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "tests/programs/pytorch/c10.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

/// One GPU's. Free blocks are found by first fit, and merged with free neighbours.
class Cache {
  public:
    CUdeviceptr allocate(std::int8_t device, std::uint64_t bytes, bool expandable) {
        const std::lock_guard lock(mutex_);
        const std::uint64_t size = (bytes + 511) / 512 * 512;
        auto found = find(size);
        if (found == blocks_.end() && !grow(size, device, expandable)) {
            release(true);
            if (!grow(size, device, expandable)) {
                c10::reportOutOfMemoryToProfiler(
#ifdef MEMLAB_OTHER_FAILURES
                    -static_cast<std::int64_t>(size), static_cast<c10::Total>(stats.reserved),
                    static_cast<c10::Total>(stats.allocated), {1, device});
#else
                    static_cast<std::int64_t>(size), static_cast<c10::Total>(stats.allocated),
                    static_cast<c10::Total>(stats.reserved), {1, device});
#endif
                return 0;
            }
        }
        if (found == blocks_.end()) {
            found = find(size);
        }
        Block& block = found->second;
        if (block.size > size) {
            blocks_.emplace(found->first + size, Block{block.size - size, block.segment, false});
            block.size = size;
        }
        block.used = true;
        stats.allocated += size;
        stats.peak_allocated = std::max(stats.peak_allocated, stats.allocated);
        ++stats.blocks;
        ++stats.live_blocks;
        tell(found->first, static_cast<std::int64_t>(size), device);
        return found->first;
    }

    void free(std::int8_t device, CUdeviceptr address) {
        const std::lock_guard lock(mutex_);
        auto at = blocks_.find(address);
        const std::uint64_t size = at->second.size;
        at->second.used = false;
        stats.allocated -= size;
        --stats.live_blocks;
        if (const auto next = std::next(at); next != blocks_.end() && joins(at, next)) {
            at->second.size += next->second.size;
            blocks_.erase(next);
        }
        if (at != blocks_.begin()) {
            if (const auto before = std::prev(at); joins(before, at)) {
                before->second.size += at->second.size;
                blocks_.erase(at);
            }
        }
        tell(address, -static_cast<std::int64_t>(size), device);
    }

    /// Gives back what holds no block.
    void release(bool locked) {
        std::unique_lock lock(mutex_, std::defer_lock);
        if (!locked) {
            lock.lock();
        }
        for (auto at = blocks_.begin(); at != blocks_.end();) {
            const auto segment = segments_.find(at->second.segment);
            if (at->second.used || at->second.size != segment->second.size) {
                ++at;
                continue;
            }
            const Segment& gone = segment->second;
            if (gone.handle != 0) {
                cuMemUnmap(segment->first, gone.size);
                cuMemRelease(gone.handle);
                cuMemAddressFree(segment->first, gone.size);
            } else {
                cuMemFree(segment->first);
            }
            stats.reserved -= gone.size;
            --stats.segments;
            segments_.erase(segment);
            at = blocks_.erase(at);
        }
    }

    /// The mapped segments, at most `most`; returns how many there are.
    std::size_t mapped(MappedSegment* to, std::size_t most) {
        const std::lock_guard lock(mutex_);
        std::size_t count = 0;
        for (auto& [address, segment] : segments_) {
            if (segment.handle != 0 && count < most) {
                to[count++] = {address, segment.size, &segment.handle};
            }
        }
        return count;
    }

    CacheStats stats{};

  private:
    struct Segment {
        std::uint64_t size;
        CUmemGenericAllocationHandle handle;  ///< of its first page; 0: from cuMemAlloc
    };
    struct Block {
        std::uint64_t size;
        CUdeviceptr segment;
        bool used;
    };
    using Blocks = std::map<CUdeviceptr, Block>;

    Blocks::iterator find(std::uint64_t size) {
        for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
            const bool small = segments_.at(at->second.segment).size == 2 * mebibyte;
            if (!at->second.used && at->second.size >= size && small == (size <= mebibyte)) {
                return at;
            }
        }
        return blocks_.end();
    }

    static bool joins(Blocks::iterator a, Blocks::iterator b) {
        return !a->second.used && !b->second.used && a->second.segment == b->second.segment;
    }

    bool grow(std::uint64_t size, std::int8_t device, bool expandable) {
        const std::uint64_t segment =
            size <= mebibyte ? 2 * mebibyte
                             : std::max(20 * mebibyte, (size + 2 * mebibyte - 1) / (2 * mebibyte) *
                                                           (2 * mebibyte));
        CUdeviceptr address = 0;
        CUmemGenericAllocationHandle handle = 0;
        if (expandable) {
            CUmemAllocationProp wanted{};
            wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
            wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
            CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            const std::uint64_t page = segment > 64 * mebibyte ? 2 * mebibyte : segment;
            std::vector<CUmemGenericAllocationHandle> pages(segment / page);
            for (CUmemGenericAllocationHandle& each : pages) {
                if (cuMemCreate(&each, page, &wanted, 0) != CUDA_SUCCESS) {
                    return false;  // with the pages before: no test goes on
                }
            }
            cuMemAddressReserve(&address, segment, 0, 0, 0);
            for (std::size_t i = 0; i < pages.size(); ++i) {
                cuMemMap(address + i * page, page, 0, pages[i], 0);
            }
            cuMemSetAccess(address, segment, &access, 1);
            handle = pages[0];
            for (std::size_t i = 1; i < pages.size(); ++i) {
                cuMemRelease(pages[i]);  // mapped, they stay
            }
        } else if (cuMemAlloc(&address, segment) != CUDA_SUCCESS) {
            return false;
        }
        segments_.emplace(address, Segment{segment, handle});
        blocks_.emplace(address, Block{segment, address, false});
        stats.reserved += segment;
        stats.peak_reserved = std::max(stats.peak_reserved, stats.reserved);
        ++stats.segments;
        return true;
    }

    void tell(CUdeviceptr address, std::int64_t bytes, std::int8_t device) const {
        auto* told = reinterpret_cast<void*>(address);
        auto allocated = static_cast<c10::Total>(stats.allocated);
        auto reserved = static_cast<c10::Total>(stats.reserved);
        std::int8_t type = 1;
#if defined(MEMLAB_OTHER_REPORTS)
        told = const_cast<CacheStats*>(&stats);
#elif defined(MEMLAB_OTHER_TOTALS)
        std::swap(allocated, reserved);
#elif defined(MEMLAB_OTHER_SUMS)
        allocated = reserved;
#elif defined(MEMLAB_OTHER_DEVICES)
        type = 30;
#endif
        c10::reportMemoryUsageToProfiler(told, bytes, allocated, reserved, {type, device});
    }

    std::mutex mutex_;
    Blocks blocks_;
    std::map<CUdeviceptr, Segment> segments_;
};

std::array<Cache, 8> caches;

}  // namespace

EXPORT CUdeviceptr torch_allocate(std::int8_t device, std::uint64_t bytes, bool expandable) {
    return caches[static_cast<std::size_t>(device)].allocate(device, bytes, expandable);
}

EXPORT void torch_free(std::int8_t device, CUdeviceptr address) {
    caches[static_cast<std::size_t>(device)].free(device, address);
}

EXPORT void torch_empty_cache(std::int8_t device) {
    caches[static_cast<std::size_t>(device)].release(false);
}

EXPORT std::size_t torch_mapped(std::int8_t device, MappedSegment* to, std::size_t most) {
    return caches[static_cast<std::size_t>(device)].mapped(to, most);
}

EXPORT CacheStats torch_stats(std::int8_t device) {
    return caches[static_cast<std::size_t>(device)].stats;
}
