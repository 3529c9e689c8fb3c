#include "interpose/sharing/memory_requests.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "interpose/driver/driver.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t millisecond = 1'000'000;
constexpr std::uint64_t longest_wait_ns = 500 * millisecond;
constexpr std::uint64_t patience_ns = 150 * millisecond;  // after the last sign of life
constexpr std::uint64_t longest_pause_ns = 16 * millisecond;
// A process that has just freed its first memory listens once its thread runs, which takes a while
// where processors are short. Where nobody listened lately, that is not waited for again: programs
// may ask all the time.
constexpr std::uint64_t first_sign_ns = 40 * millisecond;
constexpr std::uint64_t alone_for_ns = 2000 * millisecond;

// Of the 32 bits, these many stand for GPUs, the others for processes: what wakes one of them for
// no reason only makes it look.
constexpr unsigned device_bits = 24;
constexpr unsigned process_bits = 32 - device_bits;

constexpr std::size_t words = 1024;  // in a page

std::uint32_t hash(const void* data, std::size_t bytes) noexcept {
    std::uint32_t value = 2166136261U;  // FNV-1a
    for (const auto* byte = static_cast<const unsigned char*>(data); bytes != 0; --bytes, ++byte) {
        value = (value ^ *byte) * 16777619U;
    }
    return value ^ (value >> 15);
}

std::uint32_t bit_of_process() noexcept {
    const pid_t process = ::getpid();
    return 1U << (device_bits + hash(&process, sizeof process) % process_bits);
}

/// The page with the ELF header of the driver's library, which is mapped from its file and never
/// written; 0 where there is none.
std::uintptr_t header_of_driver() noexcept {
    dl_find_object found{};
    void* const function = libcuda_symbols().find("cuInit");
    if (function == nullptr || _dl_find_object(function, &found) != 0) {
        return 0;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
    const auto end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
    constexpr std::uintptr_t page = words * sizeof(std::uint32_t);
    return begin % page == 0 && end - begin >= page &&
                   std::memcmp(reinterpret_cast<const void*>(begin), ELFMAG, SELFMAG) == 0
               ? begin
               : 0;
}

/// Of the driver, for the whole device; 0 where it does not tell (no context is current).
std::size_t free_memory(std::size_t* total) noexcept {
    std::size_t free = 0;
    return device_memory_info(&free, total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace

std::uint32_t MemoryRequests::bit_of(CUdevice device) noexcept {
    CUuuid uuid{};
    return call_real(&Driver::cuDeviceGetUuid_v2, &uuid, device) == CUDA_SUCCESS
               ? 1U << (hash(&uuid, sizeof uuid) % device_bits)
               : 0;
}

const std::uint32_t* MemoryRequests::word() noexcept {
    std::uintptr_t page = page_.load(std::memory_order_acquire);
    if (page == 0) {
        page = header_of_driver();
        page = page != 0 ? page : reinterpret_cast<std::uintptr_t>(own_);
        page_.store(page, std::memory_order_release);
    }
    const uid_t user = ::geteuid();
    return reinterpret_cast<const std::uint32_t*>(page) + hash(&user, sizeof user) % words;
}

bool MemoryRequests::wait(std::uint32_t devices, std::uint64_t deadline_ns) noexcept {
    const std::uint32_t* const shared = word();
    const timespec deadline = profiler::to_timespec(deadline_ns);
    waiting_.store(devices);
    const long result = ::syscall(SYS_futex, shared, FUTEX_WAIT_BITSET, *shared, &deadline, nullptr,
                                  devices | bit_of_process());
    const int error = result == 0 ? 0 : errno;
    waiting_.store(0);
    if (error != 0 && error != ETIMEDOUT && error != EINTR) {
        // A kernel or a sandbox that knows no such futex.
        page_.store(reinterpret_cast<std::uintptr_t>(own_), std::memory_order_release);
    }
    return error == 0 && asking_.load() == 0;
}

void MemoryRequests::wake_own() noexcept {
    const std::uintptr_t page = page_.load(std::memory_order_acquire);
    if (page == 0) {
        return;  // nobody has waited yet
    }
    const int saved = errno;
    ::syscall(SYS_futex, word(), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, bit_of_process());
    errno = saved;
}

/// Whether another process holds something.
bool MemoryRequests::ask(std::uint32_t device) noexcept {
    const long own = (waiting_.load() & device) != 0 ? 1 : 0;
    return ::syscall(SYS_futex, word(), FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, device) > own;
}

// Who asks may find others in the middle of giving back, when they do not listen: then the free
// memory grows.
bool MemoryRequests::others_gave_back(CUdevice device, std::uint64_t bytes,
                                      std::uint64_t limit) noexcept {
    const std::uint32_t bit = bit_of(device);
    std::size_t total = 0;
    std::size_t free = free_memory(&total);
    const bool told = total != 0;
    if (bit == 0 || (told && (bytes > total || (limit != 0 && bytes > limit)))) {
        return false;
    }
    if (told && bytes != 0 && free >= bytes) {
        return limit == 0;  // it came meanwhile, or the limit is what is in the way
    }
    asking_.fetch_add(1);
    const std::uint64_t begin = profiler::monotonic_ns();
    const std::uint64_t last = begin + longest_wait_ns;
    const bool lately_alone = begin - alone_at_ns_.load(std::memory_order_relaxed) < alone_for_ns;
    std::uint64_t end = begin + (lately_alone ? 0 : first_sign_ns);
    bool found = false;
    bool grew = false;
    for (std::uint64_t pause = millisecond;; pause = std::min(2 * pause, longest_pause_ns)) {
        if (ask(bit)) {
            found = true;
            end = std::min(last, profiler::monotonic_ns() + patience_ns);
        }
        if (profiler::monotonic_ns() >= end) {
            break;
        }
        profiler::sleep_ns(pause);
        const std::size_t now_free = told ? free_memory(&total) : 0;
        if (now_free > free) {
            grew = true;
            end = std::min(last, profiler::monotonic_ns() + patience_ns);
        } else if (grew && bytes == 0) {
            break;
        }
        free = now_free;
        if (bytes != 0 && free >= bytes) {
            break;
        }
    }
    asking_.fetch_sub(1);
    if (!found && !grew) {
        alone_at_ns_.store(profiler::monotonic_ns(), std::memory_order_relaxed);
    }
    return grew || (found && !told);
}

}  // namespace memlab::interpose
