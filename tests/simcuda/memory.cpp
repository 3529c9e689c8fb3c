#include "tests/simcuda/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/simcuda/options.hpp"
#include "tests/simcuda/pool.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"
#include "tests/support/free_ranges.hpp"

namespace memlab::simcuda {
namespace {

constexpr uint64_t arena_bytes = 64ULL << 30;

struct Mapping {
    uint64_t bytes;
    int file;
    uint64_t offset;
    bool accessible;
};

struct Memory {
    std::map<uint64_t, uint64_t> arenas;  // address, length
    support::FreeRanges free_addresses;
    std::map<uint64_t, Mapping> pages;
    std::map<uint64_t, Allocation> allocations;
    std::map<std::pair<const Context*, Kind>, Shelf> shelves;
    uint64_t buffer_id = 1ULL << 32;
    uint64_t allocation_calls = 0;
};

Memory& memory() {
    static Memory& once = *new Memory;
    return once;
}

// Calls piece(file, file offset, bytes done, bytes) for each mapped piece of a device range.
template <typename Piece>
void for_pieces(uint64_t address, uint64_t bytes, Piece&& piece) {
    uint64_t done = 0;
    while (done < bytes) {
        auto it = std::prev(memory().pages.upper_bound(address + done));
        const uint64_t into = address + done - it->first;
        const uint64_t length = std::min(bytes - done, it->second.bytes - into);
        piece(it->second.file, it->second.offset + into, done, length);
        done += length;
    }
}

void read_device(uint64_t from, char* to, uint64_t bytes) {
    for_pieces(from, bytes, [&](int file, uint64_t offset, uint64_t done, uint64_t length) {
        uint64_t got = 0;
        while (got < length) {
            const ssize_t n =
                pread(file, to + done + got, length - got, static_cast<off_t>(offset + got));
            if (n <= 0) {
                std::memset(to + done + got, 0, length - got);
                break;
            }
            got += static_cast<uint64_t>(n);
        }
    });
}

void write_device(uint64_t to, const char* from, uint64_t bytes) {
    for_pieces(to, bytes, [&](int file, uint64_t offset, uint64_t done, uint64_t length) {
        uint64_t put = 0;
        while (put < length) {
            const ssize_t n =
                pwrite(file, from + done + put, length - put, static_cast<off_t>(offset + put));
            if (n <= 0) {
                return;
            }
            put += static_cast<uint64_t>(n);
        }
    });
}

// Cuts a page table entry in two at an address.
void split_pages(uint64_t at) {
    auto it = memory().pages.upper_bound(at);
    if (it == memory().pages.begin()) {
        return;
    }
    --it;
    const uint64_t into = at - it->first;
    if (into == 0 || into >= it->second.bytes) {
        return;
    }
    Mapping tail = it->second;
    tail.bytes -= into;
    tail.offset += into;
    it->second.bytes = into;
    memory().pages.emplace(at, tail);
}

void return_to_chunk(const Chunk& chunk, uint64_t address, uint64_t bytes) {
    Shelf& shelf = *chunk.shelf;
    if (shelf.pages.give({chunk.page, address - chunk.address}, bytes)) {
        unmap_pages(chunk.address, page_bytes);
        return_addresses(chunk.address, page_bytes);
        shelf.chunks.erase(chunk.page);
    }
}

bool allocate_small(Allocation& allocation, uint64_t bytes) {
    Shelf& shelf = memory().shelves[{allocation.context, allocation.kind}];
    support::SharedPages::Place place{};
    if (!shelf.pages.take(bytes, place)) {
        auto chunk = std::make_shared<Chunk>();
        chunk->physical = Physical::create(allocation.device, page_bytes);
        chunk->address = chunk->physical ? reserve_addresses(page_bytes) : 0;
        if (chunk->address == 0) {
            return false;
        }
        map_pages(chunk->address, page_bytes, *chunk->physical, 0, true);
        place = shelf.pages.take_new(bytes);
        chunk->shelf = &shelf;
        chunk->page = place.page;
        shelf.chunks.emplace(place.page, std::move(chunk));
    }
    allocation.chunk = shelf.chunks.at(place.page);
    allocation.base = allocation.chunk->address + place.offset;
    return true;
}

bool allocate_pages(Allocation& allocation, uint64_t bytes) {
    allocation.physical = allocation.kind == Kind::managed
                              ? Physical::create_managed(allocation.device, bytes)
                              : Physical::create(allocation.device, bytes);
    if (!allocation.physical) {
        return false;
    }
    allocation.base = reserve_addresses(bytes);
    if (allocation.base == 0) {
        return false;
    }
    map_pages(allocation.base, bytes, *allocation.physical, 0, true);
    if (allocation.kind == Kind::managed) {
        return mmap(reinterpret_cast<void*>(allocation.base), bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, allocation.physical->file(),
                    static_cast<off_t>(allocation.physical->offset())) != MAP_FAILED;
    }
    return true;
}

}  // namespace

std::shared_ptr<Physical> Physical::create(int ordinal, uint64_t bytes) {
    Device& device = *find_device(ordinal);
    const auto fits = [&] {
        return bytes <= options().memory &&
               device.used + options().withheld <= options().memory - bytes;
    };
    if (!fits()) {
        release_cached_memory(ordinal);
    }
    if (!fits()) {
        return nullptr;
    }
    std::shared_ptr<Physical> made = make(ordinal, bytes, Place::device);
    device.used += made ? bytes : 0;
    return made;
}

std::shared_ptr<Physical> Physical::create_managed(int ordinal, uint64_t bytes) {
    return make(ordinal, bytes, Place::elsewhere);
}

std::shared_ptr<Physical> Physical::make(int ordinal, uint64_t bytes, Place place) {
    Device& device = *find_device(ordinal);
    if (device.file < 0) {
        device.file = memfd_create("simcuda", MFD_CLOEXEC);
    }
    const uint64_t offset = device.file_end;
    if (device.file < 0 || ftruncate(device.file, static_cast<off_t>(offset + bytes)) != 0) {
        return nullptr;
    }
    device.file_end += bytes;
    return std::shared_ptr<Physical>(new Physical(ordinal, device.file, offset, bytes, place));
}

std::shared_ptr<Physical> Physical::import(int device, int file, uint64_t offset, uint64_t bytes) {
    return std::shared_ptr<Physical>(
        new Physical(device, file, offset, bytes, Place::other_process));
}

Physical::~Physical() {
    if (place_ == Place::other_process) {
        close(file_);
        return;
    }
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_),
              static_cast<off_t>(bytes_));
    find_device(device_)->used -= place_ == Place::device ? bytes_ : 0;
}

uint64_t reserve_addresses(uint64_t bytes, uint64_t alignment) {
    if (bytes > address_space || alignment > address_space) {
        return 0;
    }
    bytes = round_up(bytes, page_bytes);
    alignment = std::max(alignment, page_bytes);
    auto& free = memory().free_addresses;
    for (int attempt = 0; attempt < 2; ++attempt) {
        uint64_t address = 0;
        if (free.take(bytes, alignment, address)) {
            return address;
        }
        const uint64_t wanted = std::max(arena_bytes, bytes + alignment) + page_bytes;
        void* arena =
            mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) {
            return 0;
        }
        madvise(arena, wanted, MADV_DONTFORK);
        memory().arenas.emplace(reinterpret_cast<uint64_t>(arena), wanted);
        const uint64_t start = round_up(reinterpret_cast<uint64_t>(arena), page_bytes);
        free.give(start,
                  (reinterpret_cast<uint64_t>(arena) + wanted - start) / page_bytes * page_bytes);
    }
    return 0;
}

void return_addresses(uint64_t address, uint64_t bytes) {
    memory().free_addresses.give(address, round_up(bytes, page_bytes));
}

void map_pages(uint64_t address, uint64_t bytes, const Physical& physical, uint64_t offset,
               bool accessible) {
    memory().pages.emplace(address,
                           Mapping{bytes, physical.file(), physical.offset() + offset, accessible});
}

void unmap_pages(uint64_t address, uint64_t bytes) {
    split_pages(address);
    split_pages(address + bytes);
    auto& pages = memory().pages;
    pages.erase(pages.lower_bound(address), pages.lower_bound(address + bytes));
}

bool set_pages_accessible(uint64_t address, uint64_t bytes, bool accessible) {
    if (pages_state(address, bytes) == 0) {
        return false;
    }
    split_pages(address);
    split_pages(address + bytes);
    auto& pages = memory().pages;
    for (auto it = pages.lower_bound(address); it != pages.end() && it->first < address + bytes;
         ++it) {
        it->second.accessible = accessible;
    }
    return true;
}

int pages_state(uint64_t address, uint64_t bytes) {
    int state = 2;
    auto& pages = memory().pages;
    const uint64_t end = address + bytes;
    do {
        auto it = pages.upper_bound(address);
        if (it == pages.begin()) {
            return 0;
        }
        --it;
        if (it->first + it->second.bytes <= address) {
            return 0;
        }
        if (!it->second.accessible) {
            state = 1;
        }
        address = it->first + it->second.bytes;
    } while (address < end);
    return state;
}

bool is_reserved_address(uint64_t address) {
    auto& arenas = memory().arenas;
    auto it = arenas.upper_bound(address);
    return it != arenas.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

bool is_device_address(uint64_t address) {
    return pages_state(address, 1) != 0;
}

void copy_bytes(uint64_t to, uint64_t from, uint64_t bytes) {
    const bool to_device = is_device_address(to);
    const bool from_device = is_device_address(from);
    if (!to_device && !from_device) {
        std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    } else if (!from_device) {
        write_device(to, reinterpret_cast<const char*>(from), bytes);
    } else if (!to_device) {
        read_device(from, reinterpret_cast<char*>(to), bytes);
    } else {
        // Whole and through a buffer, so that overlapping ranges copy as memmove does.
        std::vector<char> buffer(bytes);
        read_device(from, buffer.data(), bytes);
        write_device(to, buffer.data(), bytes);
    }
}

void fill_bytes(uint64_t to, uint64_t bytes, const void* pattern, uint64_t pattern_bytes) {
    constexpr uint64_t most = 1ULL << 20;
    if (bytes == 0) {
        return;
    }
    // The pattern once, then what is there already, again and again behind itself.
    std::vector<char> buffer(std::min(most, bytes));
    uint64_t filled = std::min<uint64_t>(pattern_bytes, buffer.size());
    std::memcpy(buffer.data(), pattern, filled);
    while (filled < buffer.size()) {
        const uint64_t more = std::min<uint64_t>(filled, buffer.size() - filled);
        std::memcpy(buffer.data() + filled, buffer.data(), more);
        filled += more;
    }
    for (uint64_t done = 0; done < bytes; done += buffer.size()) {
        copy_bytes(to + done, reinterpret_cast<uint64_t>(buffer.data()),
                   std::min<uint64_t>(buffer.size(), bytes - done));
    }
}

bool usable(uint64_t address, uint64_t bytes) {
    if (!is_reserved_address(address)) {
        return address != 0;
    }
    if (bytes == 0) {
        return true;
    }
    const Allocation* allocation = find_allocation(address);
    if (allocation == nullptr || allocation->kind == Kind::vmm) {
        return reservation_of(address).second != 0 && pages_state(address, bytes) == 2;
    }
    return bytes <= allocation->base + allocation->bytes - address;
}

bool is_pageable(uint64_t address) {
    return !is_reserved_address(address) && find_allocation(address) == nullptr;
}

std::map<uint64_t, Allocation>& allocations() {
    return memory().allocations;
}

uint64_t next_buffer_id() {
    return ++memory().buffer_id;
}

Allocation* find_allocation(uint64_t address) {
    auto& all = memory().allocations;
    auto it = all.upper_bound(address);
    if (it == all.begin()) {
        return nullptr;
    }
    --it;
    return address - it->first < it->second.bytes ? &it->second : nullptr;
}

CUresult check_allocation_faults(uint64_t bytes) {
    const bool nth = ++memory().allocation_calls == options().oom_at;
    return nth || bytes > options().oom_above ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult allocate_device(Context& context, uint64_t bytes, Kind kind, uint64_t& address) {
    if (bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // A module's variables are not an allocation of the program.
    const bool counted = kind != Kind::module;
    if (CUresult fault = counted ? check_allocation_faults(bytes) : CUDA_SUCCESS;
        fault != CUDA_SUCCESS) {
        return fault;
    }
    if (bytes > options().memory) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation allocation;
    allocation.bytes = bytes;
    allocation.kind = kind;
    allocation.context = &context;
    allocation.device = context.device;
    const bool small = bytes < page_bytes && kind != Kind::managed;
    allocation.reserved =
        small ? support::SharedPages::rounded(bytes) : round_up(bytes, page_bytes);
    if (!(small ? allocate_small(allocation, allocation.reserved)
                : allocate_pages(allocation, allocation.reserved))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.buffer_id = next_buffer_id();
    address = allocation.base;
    count_live(counted ? static_cast<int64_t>(bytes) : 0);
    memory().allocations.emplace(address, std::move(allocation));
    return CUDA_SUCCESS;
}

void release_allocation(uint64_t base) {
    auto it = memory().allocations.find(base);
    if (it == memory().allocations.end()) {
        return;
    }
    Allocation gone = std::move(it->second);
    memory().allocations.erase(it);
    set_owner(gone.base, gone.bytes, 0);
    switch (gone.kind) {
        case Kind::pinned:
            munmap(reinterpret_cast<void*>(gone.base), gone.reserved);
            return;
        case Kind::registered:
            return;
        case Kind::vmm:
            count_live(-static_cast<int64_t>(gone.bytes));
            return;
        case Kind::ipc: {
            const uint64_t mapped = gone.base / page_bytes * page_bytes;
            unmap_pages(mapped, gone.reserved);
            return_addresses(mapped, gone.reserved);
            return;
        }
        case Kind::module:
            break;
        default:
            count_live(-static_cast<int64_t>(gone.bytes));
            break;
    }
    if (gone.chunk) {
        return_to_chunk(*gone.chunk, gone.base, gone.reserved);
        return;
    }
    unmap_pages(gone.base, gone.reserved);
    if (gone.kind == Kind::graph) {
        return;  // the next launch of its graph uses the address again
    }
    if (gone.kind == Kind::managed) {
        static_cast<void>(mmap(reinterpret_cast<void*>(gone.base), gone.reserved, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
    }
    return_addresses(gone.base, gone.reserved);
}

}  // namespace memlab::simcuda
