#include "interpose/memory/caller_policy.hpp"

#include <unwind.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <string_view>

#include "interpose/memory/object_classes.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint8_t unknown = 0;
constexpr std::uint8_t plumbing = 1;     // the CUDA runtime and driver
constexpr std::uint8_t independent = 2;  // does not rely on the wait
constexpr std::uint8_t other = 3;

std::uint8_t classify(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("libcudart.so") || name.starts_with("libcuda.so")) {
        return plumbing;
    }
    return name.starts_with("libc10_cuda.so") ? independent : other;
}

constinit ObjectClasses classes;

// Where the free's own return address lies; 0 outside of a free.
__attribute__((tls_model("initial-exec"))) thread_local std::uintptr_t entry_slot = 0;

std::uintptr_t word_at(std::uintptr_t slot) {
    return *reinterpret_cast<const std::uintptr_t*>(slot);
}

// By the free's own return address: how far above it the caller's lies. One word each, so that it
// is read and written without a lock: 48 bits of address, 16 of distance.
constexpr std::size_t known_entries = 64;
constexpr unsigned distance_bits = 16;
constinit std::atomic<std::uint64_t> distances[known_entries];

std::atomic<std::uint64_t>& distance_of(std::uintptr_t address) {
    return distances[(address >> 2) % known_entries];
}

constinit profiler::unwind::UnloadFollower follower;

/// The caller's return address, where it was found before for this entry; 0 where it was not.
[[gnu::hot]] std::uintptr_t known_caller(std::uintptr_t entry) {
    const std::uint64_t known = distance_of(entry).load(std::memory_order_relaxed);
    const std::uintptr_t distance = known & ((1U << distance_bits) - 1);
    return known >> distance_bits == entry ? word_at(entry_slot + distance) : 0;
}

std::uint8_t remembered(std::uintptr_t entry) {
    if (follower.is_behind()) {
        follower.catch_up([] {
            for (std::atomic<std::uint64_t>& distance : distances) {
                distance.store(0, std::memory_order_relaxed);
            }
        });
    }
    const std::uintptr_t caller = known_caller(entry);
    const std::uint8_t kind = caller == 0 ? unknown : classes.of(caller, classify);
    return kind == plumbing ? unknown : kind;
}

struct Search {
    std::uint8_t kind = unknown;
    std::uintptr_t slot = 0;  // of the return address into the caller
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
    const std::uintptr_t address = _Unwind_GetIP(context);
    // For the unwinder a frame's CFA is the end of the frame that it called: the return address
    // into it is the word below.
    const std::uintptr_t slot = _Unwind_GetCFA(context) - sizeof(std::uintptr_t);
    if (address == 0) {
        return _URC_END_OF_STACK;
    }
    if (slot < entry_slot) {
        return _URC_NO_REASON;
    }
    try {
        const std::uint8_t kind = classes.of(address, classify);
        if (kind == plumbing) {
            return _URC_NO_REASON;
        }
        *static_cast<Search*>(argument) = {kind, slot};
    } catch (const std::bad_alloc&) {  // unknown is the careful answer
    }
    return _URC_END_OF_STACK;
}

}  // namespace

[[gnu::hot]] FreeFrame::FreeFrame(void* frame) {
    entry_slot = reinterpret_cast<std::uintptr_t>(frame) - sizeof(std::uintptr_t);
}

[[gnu::hot]] FreeFrame::~FreeFrame() {
    entry_slot = 0;
}

[[gnu::hot]] bool caller_is_known_to_go_on() {
    if (entry_slot == 0 || follower.is_behind()) {
        return false;
    }
    const std::uintptr_t caller = known_caller(word_at(entry_slot));
    return caller != 0 && classes.known(caller) == independent;
}

[[gnu::hot]] bool caller_relies_on_host_wait() {
    if (entry_slot == 0) {
        return true;
    }
    const std::uintptr_t entry = word_at(entry_slot);
    try {
        if (const std::uint8_t kind = remembered(entry); kind != unknown) {
            return kind != independent;
        }
    } catch (const std::bad_alloc&) {
        return true;
    }
    Search search;
    _Unwind_Backtrace(step, &search);
    const std::uintptr_t distance = search.slot - entry_slot;
    if (search.kind != unknown && distance >> distance_bits == 0) {
        distance_of(entry).store(std::uint64_t{entry} << distance_bits | distance,
                                 std::memory_order_relaxed);
    }
    return search.kind != independent;
}

}  // namespace memlab::interpose
