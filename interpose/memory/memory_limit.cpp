#include "interpose/memory/memory_limit.hpp"

#include <algorithm>
#include <limits>

#include "interpose/driver/driver.hpp"
#include "interpose/driver/relaxed_capture.hpp"

namespace memlab::interpose {

CUresult device_memory_info(std::size_t* free, std::size_t* total) {
    const RelaxedCapture relaxed(true);
    return call_real(&Driver::cuMemGetInfo_v2, free, total);
}

[[gnu::hot]] bool MemoryLimits::wanted() const {
    return was_set_.load(std::memory_order_relaxed) ||
           std::any_of(wanted_.begin(), wanted_.end(),
                       [](const DeviceLimit& limit) { return limit.bytes != 0; });
}

void MemoryLimits::set(CUdevice device, std::uint64_t bytes) {
    std::size_t total = 0;
    if (device < 0 || device >= max_devices) {
        return;
    }
    if (call_real(&Driver::cuDeviceTotalMem_v2, &total, device) == CUDA_SUCCESS && bytes >= total) {
        bytes = 0;
    }
    known_[device].store(bytes + 1, std::memory_order_relaxed);
    was_set_.store(true, std::memory_order_relaxed);
}

bool MemoryLimits::applies() {
    int count = 0;
    call_real(&Driver::cuDeviceGetCount, &count);
    for (CUdevice device = 0; device < count; ++device) {
        if (limit_for(device) != 0) {
            return true;
        }
    }
    return false;
}

std::uint64_t MemoryLimits::limit_for(CUdevice device) {
    if (device < 0 || device >= max_devices || !wanted()) {
        return 0;
    }
    std::uint64_t known = known_[device].load(std::memory_order_relaxed);
    if (known == unknown) {
        std::uint64_t limit = find_limit(wanted_, device, device_uuid(device));
        std::size_t total = 0;
        if (call_real(&Driver::cuDeviceTotalMem_v2, &total, device) == CUDA_SUCCESS &&
            limit >= total) {
            limit = 0;
        }
        known = limit + 1;
        known_[device].store(known, std::memory_order_relaxed);
    }
    return known - 1;
}

std::uint64_t MemoryLimits::available(CUdevice device) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (device_memory_info(&free, &total) != CUDA_SUCCESS) {
        return std::numeric_limits<std::uint64_t>::max();
    }
    return visible_memory(free, total, 0, limit_for(device)).free;
}

CUresult MemoryLimits::take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real) {
    return limit_for(device) == 0 ? real() : take_locked(device, bytes, real, nullptr);
}

CUresult MemoryLimits::take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real,
                            FunctionRef<void()> undo) {
    return limit_for(device) == 0 ? real() : take_locked(device, bytes, real, &undo);
}

CUresult MemoryLimits::take_locked(CUdevice device, std::uint64_t bytes,
                                   FunctionRef<CUresult()> real, const FunctionRef<void()>* undo) {
    const std::uint64_t limit = limit_for(device);
    const threads::LockGuard lock(device_mutexes_[device]);
    std::size_t free = 0;
    std::size_t total = 0;
    if (device_memory_info(&free, &total) != CUDA_SUCCESS) {
        return real();  // let the driver report the error
    }
    if (bytes != 0 && !fits_limit(bytes, free, total, limit)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = real();
    std::size_t free_after = 0;
    if (undo != nullptr && result == CUDA_SUCCESS &&
        device_memory_info(&free_after, &total) == CUDA_SUCCESS && free_after < free &&
        !fits_limit(0, free_after, total, limit)) {
        (*undo)();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

}  // namespace memlab::interpose
