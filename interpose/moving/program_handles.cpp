// What the program does with its handles: each call translates them and keeps the table.
#include "interpose/moving/program_handles.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "interpose/driver/driver.hpp"
#include "interpose/moving/gate.hpp"

namespace memlab::interpose {
namespace {

/// Sets the access of one location in a mapping's list, which has room.
void set_one(std::vector<CUmemAccessDesc>& list, const CUmemAccessDesc& access) {
    const auto known = std::find_if(list.begin(), list.end(), [&](const CUmemAccessDesc& each) {
        return each.location.type == access.location.type && each.location.id == access.location.id;
    });
    if (known == list.end()) {
        list.push_back(access);
    } else {
        *known = access;
    }
}

/// Memory that nobody but this process's work can know.
bool may_be_followed(const CUmemAllocationProp* properties) {
    return properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           static_cast<std::uint32_t>(properties->location.id) < trace::DeviceInfo::max_gpus &&
           (properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) == 0;
}

}  // namespace

// The mover holds nothing that a waiting thread has, and moves for a second or so.
void ProgramHandles::wait_for_move() {
    while (moving_) {
        moved_.wait(mutex_);
    }
}

ProgramHandles::Allocation* ProgramHandles::find(Handle seen) {
    const auto found = may_be_ours(seen) ? seen_.find(seen) : seen_.end();
    return found == seen_.end() ? nullptr : &all_.at(found->second);
}

/// The first mapping that ends behind the address.
ProgramHandles::Mappings::iterator ProgramHandles::first_mapping(CUdeviceptr address) {
    auto at = mappings_.upper_bound(address);
    if (at != mappings_.begin()) {
        const auto before = std::prev(at);
        if (address - before->first < before->second.bytes) {
            at = before;
        }
    }
    return at;
}

/// The program has a first reference of it again. May throw std::bad_alloc, before that.
void ProgramHandles::give_handle(Allocation& allocation) {
    const Handle seen = first_seen + next_;
    seen_.emplace(seen, allocation.id);
    ++next_;
    allocation.seen = seen;
    allocation.references = 1;
}

ProgramHandles::Handle ProgramHandles::created(Handle driver, std::size_t bytes,
                                               const CUmemAllocationProp* properties,
                                               unsigned long long flags) {
    if (!may_be_followed(properties)) {
        return driver;
    }
    const threads::LockGuard lock(mutex_);
    const std::uint64_t id = next_++;
    Allocation& allocation = all_[id];
    allocation.id = id;
    try {
        give_handle(allocation);
    } catch (...) {
        all_.erase(id);
        throw;
    }
    allocation.driver = driver;
    allocation.bytes = bytes;
    allocation.wanted = *properties;
    allocation.flags = flags;
    return allocation.seen;
}

void ProgramHandles::set_number(Handle seen, std::uint64_t number) {
    const threads::LockGuard lock(mutex_);
    if (Allocation* const allocation = find(seen)) {
        allocation->number = number;
    }
}

ProgramHandles::Handle ProgramHandles::driver_handle(Handle seen) {
    if (!may_be_ours(seen)) {
        return seen;
    }
    const threads::LockGuard lock(mutex_);
    const Allocation* const allocation = find(seen);
    return allocation != nullptr ? allocation->driver : seen;
}

ProgramHandles::Handle ProgramHandles::given_away(Handle seen) {
    if (!may_be_ours(seen)) {
        return seen;
    }
    const threads::LockGuard lock(mutex_);
    Allocation* const allocation = find(seen);
    if (allocation == nullptr) {
        return seen;
    }
    allocation->stays = true;
    return allocation->driver;
}

void ProgramHandles::must_stay(CUdeviceptr address, std::size_t bytes) {
    const threads::LockGuard lock(mutex_);
    for (auto at = first_mapping(address); at != mappings_.end() && at->first < address + bytes;
         ++at) {
        all_.at(at->second.allocation).stays = true;
    }
}

void ProgramHandles::drop_if_dead(std::uint64_t id) noexcept {
    const auto found = all_.find(id);
    if (found == all_.end() || found->second.references != 0 || !found->second.places.empty()) {
        return;
    }
    if (found->second.away) {
        add_away(found->second.device(), -static_cast<std::int64_t>(found->second.bytes));
    }
    if (found->second.own != 0) {  // what could not be mapped again when it stayed
        call_real(&Driver::cuMemRelease, found->second.own);
    }
    all_.erase(found);
}

void ProgramHandles::drop_mapping(Mappings::iterator mapping) noexcept {
    const std::uint64_t id = mapping->second.allocation;
    std::erase(all_.at(id).places, mapping->first);
    absent_.fetch_sub(mapping->second.present ? 0 : 1);
    mappings_.erase(mapping);
    drop_if_dead(id);
}

CUresult ProgramHandles::release(Handle seen, FunctionRef<CUresult(Handle)> real) {
    if (!may_be_ours(seen)) {
        return real(seen);
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    Allocation* const allocation = find(seen);
    if (allocation == nullptr) {
        return real(seen);
    }
    if (allocation->references > 1) {
        --allocation->references;
        return CUDA_SUCCESS;
    }
    if (allocation->driver != 0) {
        if (const CUresult result = real(allocation->driver); result != CUDA_SUCCESS) {
            return result;
        }
    }
    const auto at = seen_.find(seen);
    const std::uint64_t id = at->second;
    seen_.erase(at);
    allocation->seen = allocation->driver = 0;
    allocation->references = 0;
    drop_if_dead(id);
    return CUDA_SUCCESS;
}

CUresult ProgramHandles::retain(Handle* seen, CUdeviceptr address,
                                FunctionRef<CUresult(Handle*)> real) {
    if (!gate.on()) {
        return real(seen);
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    const auto at = first_mapping(address);
    if (seen == nullptr || at == mappings_.end() || at->first > address) {
        return real(seen);
    }
    Allocation& allocation = all_.at(at->second.allocation);
    Handle driver = 0;
    if (!allocation.away && at->second.present) {
        if (const CUresult result = real(&driver); result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (allocation.references != 0) {  // the driver has one reference of it already
        ++allocation.references;
        if (driver != 0) {
            call_real(&Driver::cuMemRelease, driver);
        }
    } else {
        try {
            give_handle(allocation);
        } catch (...) {
            if (driver != 0) {
                call_real(&Driver::cuMemRelease, driver);
            }
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        allocation.driver = driver != 0 ? driver : std::exchange(allocation.own, 0);
    }
    *seen = allocation.seen;
    return CUDA_SUCCESS;
}

CUresult ProgramHandles::properties(CUmemAllocationProp* properties, Handle seen,
                                    FunctionRef<CUresult(Handle)> real) {
    if (!may_be_ours(seen)) {
        return real(seen);
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    const Allocation* const allocation = find(seen);
    if (allocation == nullptr || properties == nullptr || !allocation->away) {
        return real(allocation != nullptr ? allocation->driver : seen);
    }
    *properties = allocation->answered;
    return CUDA_SUCCESS;
}

CUresult ProgramHandles::map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                             Handle seen, FunctionRef<CUresult(Handle)> real) {
    if (!may_be_ours(seen)) {
        return real(seen);
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    Allocation* const allocation = find(seen);
    if (allocation == nullptr) {
        return real(seen);
    }
    Mappings one;
    try {
        Mapping& mapping = one[address];
        mapping.bytes = bytes;
        mapping.offset = offset;
        mapping.allocation = allocation->id;
        allocation->places.reserve(allocation->places.size() + 1);
    } catch (const std::bad_alloc&) {  // the handle is of no use to the driver
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = real(allocation->driver);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (const auto put = mappings_.insert(one.extract(one.begin())); put.inserted) {
        allocation->places.push_back(address);
    } else {  // an earlier mapping was removed unseen
        allocation->stays = all_.at(put.position->second.allocation).stays = true;
    }
    return result;
}

CUresult ProgramHandles::unmap(CUdeviceptr address, std::size_t bytes,
                               FunctionRef<CUresult(CUdeviceptr, std::size_t)> real) {
    if (!gate.on()) {
        return real(address, bytes);
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    const CUdeviceptr end = address + bytes;
    bool all_present = true;
    bool whole = true;
    for (auto at = first_mapping(address); at != mappings_.end() && at->first < end; ++at) {
        all_present = all_present && at->second.present;
        whole = whole && at->first >= address && at->second.bytes <= end - at->first;
    }
    if (all_present) {
        if (const CUresult result = real(address, bytes); result != CUDA_SUCCESS) {
            return result;
        }
    } else if (!whole) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto at = first_mapping(address); at != mappings_.end() && at->first < end;) {
        const auto mapping = at++;
        if (!all_present && mapping->second.present) {
            if (const CUresult result = real(mapping->first, mapping->second.bytes);
                result != CUDA_SUCCESS) {
                return result;
            }
        }
        drop_mapping(mapping);
    }
    return CUDA_SUCCESS;
}

CUresult ProgramHandles::set_access(CUdeviceptr address, std::size_t bytes,
                                    const CUmemAccessDesc* access, std::size_t count,
                                    FunctionRef<CUresult()> real) {
    if (!gate.on()) {
        return real();
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    const CUdeviceptr end = address + bytes;
    for (auto at = first_mapping(address); at != mappings_.end() && at->first < end; ++at) {
        at->second.access.reserve(at->second.access.size() + count);
    }
    const CUresult result = real();
    if (result == CUDA_SUCCESS) {
        for (auto at = first_mapping(address); at != mappings_.end() && at->first < end; ++at) {
            for (std::size_t i = 0; i < count; ++i) {
                set_one(at->second.access, access[i]);
            }
        }
    }
    return result;
}

bool ProgramHandles::is_away(CUdeviceptr address, std::size_t bytes) {
    if (absent_.load() == 0) {
        return false;
    }
    const threads::LockGuard lock(mutex_);
    for (auto at = first_mapping(address); at != mappings_.end() && at->first < address + bytes;
         ++at) {
        if (!at->second.present) {
            return true;
        }
    }
    return false;
}

std::uint64_t ProgramHandles::away_bytes(CUdevice device) const {
    std::uint64_t bytes = 0;
    for (std::size_t each = 0; each < std::size(away_); ++each) {
        if (device < 0 || each == static_cast<std::size_t>(device)) {
            bytes += away_[each].load(std::memory_order_relaxed);
        }
    }
    return bytes;
}

bool ProgramHandles::was_moved(CUdevice device) const {
    const auto index = static_cast<std::size_t>(device);
    return index < std::size(was_moved_) && was_moved_[index].load(std::memory_order_relaxed);
}

void ProgramHandles::add_away(CUdevice device, std::int64_t bytes) noexcept {
    const auto index = static_cast<std::size_t>(device);
    away_[index].fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
    was_moved_[index].store(true, std::memory_order_relaxed);
}

void ProgramHandles::forget_after_fork() noexcept {
    new (this) ProgramHandles;  // nothing is destroyed
}

ProgramHandles& program_handles() {
    static auto* const instance = new ProgramHandles;
    return *instance;
}

}  // namespace memlab::interpose
