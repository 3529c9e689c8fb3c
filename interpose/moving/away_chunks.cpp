// Chunks of the pool's memory that go away and come back, at unchanged addresses.
//
// What a chunk is the driver says (cuMemGetAddressRange of mapped memory is one mapping), so that
// nothing is kept for this while nobody moves anything. A chunk that comes back is created as it
// was: of the same size, since chunks are unmapped as a whole, with the same properties, and with
// the access that devices have by then.
#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "interpose/driver/driver.hpp"
#include "interpose/driver/vmm_pages.hpp"

namespace memlab::interpose {

// The mover holds nothing that a waiting thread has, and moves for a second or so.
void VmmPages::wait_for_move() {
    while (moving_) {
        moved_.wait(mutex_);
    }
}

std::vector<CUmemAccessDesc> VmmPages::accesses() const {
    std::vector<CUmemAccessDesc> access;
    access.reserve(accessors_.size());
    for (const CUdevice accessor : accessors_) {
        access.push_back(access_of(accessor, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    }
    return access;
}

CUresult VmmPages::for_each_present(
    std::uint64_t start, std::uint64_t end,
    FunctionRef<CUresult(std::uint64_t, std::uint64_t)> visit) const {
    auto away = away_.lower_bound(start);
    while (start < end) {
        const std::uint64_t until = away == away_.end() ? end : std::min(away->first, end);
        if (start < until) {
            if (const CUresult result = visit(start, until); result != CUDA_SUCCESS) {
                return result;
            }
        }
        start = until;
        for (; away != away_.end() && away->first == start && start < end; ++away) {
            start += away->second.bytes;
        }
    }
    return CUDA_SUCCESS;
}

CUresult VmmPages::unmap_present(std::uint64_t address, std::uint64_t bytes) {
    const CUresult result =
        for_each_present(address, address + bytes, [](std::uint64_t start, std::uint64_t end) {
            return call_real(&Driver::cuMemUnmap, CUdeviceptr{start}, std::size_t{end - start});
        });
    const auto first = away_.lower_bound(address);
    auto last = first;
    for (; last != away_.end() && last->first < address + bytes; ++last) {
        away_bytes_.fetch_sub(last->second.bytes, std::memory_order_relaxed);
    }
    away_.erase(first, last);
    return result;
}

CUresult VmmPages::set_access_where_present(std::uint64_t start, std::uint64_t end,
                                            const CUmemAccessDesc& access) {
    return for_each_present(start, end, [&access](std::uint64_t from, std::uint64_t to) {
        return call_real(&Driver::cuMemSetAccess, CUdeviceptr{from}, std::size_t{to - from},
                         &access, std::size_t{1});
    });
}

void VmmPages::must_stay(std::uint64_t address, std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    const std::pair range(address, address + bytes);
    if (std::find(staying_.begin(), staying_.end(), range) == staying_.end()) {
        staying_.push_back(range);
    }
}

bool VmmPages::stays(std::uint64_t address, std::uint64_t bytes) const {
    return std::any_of(staying_.begin(), staying_.end(), [=](const auto& range) {
        return range.first < address + bytes && address < range.second;
    });
}

bool VmmPages::is_away(std::uint64_t address) {
    if (away_bytes() == 0) {
        return false;
    }
    const threads::LockGuard lock(mutex_);
    const auto above = away_.upper_bound(address);
    if (above == away_.begin()) {
        return false;
    }
    const auto& [start, away] = *std::prev(above);
    return address - start < away.bytes;
}

std::uint64_t VmmPages::mapped_bytes() {
    const threads::LockGuard lock(mutex_);
    std::uint64_t bytes = 0;
    for (const auto& [start, end] : mapped_) {
        bytes += end - start;
    }
    return bytes;
}

std::vector<VmmPages::MovableChunk> VmmPages::begin_move(std::uint64_t* unknown) {
    std::vector<MovableChunk> chunks;
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    *unknown = 0;
    for (const auto& [first, last] : mapped_) {
        for_each_present(first, last, [&](std::uint64_t start, std::uint64_t end) {
            while (start < end) {
                CUdeviceptr base = 0;
                std::size_t size = 0;
                if (call_real(&Driver::cuMemGetAddressRange_v2, &base, &size, CUdeviceptr{start}) !=
                        CUDA_SUCCESS ||
                    base != start || size == 0 || size > end - start) {
                    *unknown += end - start;
                    return CUDA_SUCCESS;
                }
                chunks.push_back({start, size});
                start += size;
            }
            return CUDA_SUCCESS;
        });
    }
    for (MovableChunk& chunk : chunks) {
        chunk.stays = stays(chunk.address, chunk.bytes);
    }
    moving_ = true;
    return chunks;
}

void VmmPages::end_move() {
    const threads::LockGuard lock(mutex_);
    moving_ = false;
    moved_.notify_all();
}

CUresult VmmPages::take_out(const MovableChunk& chunk, std::unique_ptr<KeptContents> contents) {
    AwayChunks one;
    one.emplace(chunk.address, Away{chunk.bytes, std::move(contents)});
    const threads::LockGuard lock(mutex_);
    away_bytes_.fetch_add(chunk.bytes);  // before: is_away() looks at it without the lock
    const CUresult result =
        call_real(&Driver::cuMemUnmap, CUdeviceptr{chunk.address}, std::size_t{chunk.bytes});
    if (result == CUDA_SUCCESS) {
        away_.insert(one.extract(one.begin()));
        was_moved_.store(true, std::memory_order_relaxed);
    } else {
        away_bytes_.fetch_sub(chunk.bytes);
    }
    return result;
}

CUresult VmmPages::get_memory() {
    const threads::LockGuard lock(mutex_);
    for (auto& [address, away] : away_) {
        const CUresult result =
            call_real(&Driver::cuMemCreate, &away.handle, std::size_t{away.bytes},
                      static_cast<const CUmemAllocationProp*>(&properties_), 0ULL);
        if (result != CUDA_SUCCESS) {
            away.handle = 0;
            for (auto& [other, made] : away_) {
                if (made.handle != 0) {
                    call_real(&Driver::cuMemRelease, std::exchange(made.handle, 0));
                }
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

void VmmPages::return_memory() {
    const threads::LockGuard lock(mutex_);
    for (auto& [address, away] : away_) {
        if (away.handle != 0) {
            call_real(&Driver::cuMemRelease, std::exchange(away.handle, 0));
        }
    }
}

CUresult VmmPages::map_memory() {
    const threads::LockGuard lock(mutex_);
    const std::vector<CUmemAccessDesc> access = accesses();
    CUresult result = CUDA_SUCCESS;
    auto next = away_.begin();
    for (; next != away_.end() && result == CUDA_SUCCESS; ++next) {
        result =
            call_real(&Driver::cuMemMap, CUdeviceptr{next->first}, std::size_t{next->second.bytes},
                      std::size_t{0}, next->second.handle, 0ULL);
        if (result != CUDA_SUCCESS) {
            break;
        }
    }
    // Neighbours at once: a call of the driver for each run of chunks.
    for (auto from = away_.begin(); from != away_.end() && result == CUDA_SUCCESS;) {
        std::uint64_t end = from->first;
        auto to = from;
        for (; to != away_.end() && to->first == end; ++to) {
            end += to->second.bytes;
        }
        result = call_real(&Driver::cuMemSetAccess, CUdeviceptr{from->first},
                           std::size_t{end - from->first},
                           static_cast<const CUmemAccessDesc*>(access.data()), access.size());
        from = to;
    }
    if (result != CUDA_SUCCESS) {
        for (auto mapped = away_.begin(); mapped != next; ++mapped) {
            call_real(&Driver::cuMemUnmap, CUdeviceptr{mapped->first},
                      std::size_t{mapped->second.bytes});
        }
    }
    return result;
}

void VmmPages::unmap_memory() {
    const threads::LockGuard lock(mutex_);
    for (auto& [address, away] : away_) {
        call_real(&Driver::cuMemUnmap, CUdeviceptr{address}, std::size_t{away.bytes});
    }
}

void VmmPages::for_each_away(FunctionRef<void(std::uint64_t, std::uint64_t, KeptContents&)> visit) {
    const threads::LockGuard lock(mutex_);
    for (auto& [address, away] : away_) {
        visit(address, away.bytes, *away.contents);
    }
}

VmmPages::AwayChunks VmmPages::came_back() {
    const threads::LockGuard lock(mutex_);
    for (auto& [address, away] : away_) {
        // The mapping keeps the memory.
        call_real(&Driver::cuMemRelease, std::exchange(away.handle, 0));
    }
    away_bytes_.store(0, std::memory_order_relaxed);
    return std::exchange(away_, {});
}

}  // namespace memlab::interpose
