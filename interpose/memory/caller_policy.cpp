#include "interpose/memory/caller_policy.hpp"

#include <atomic>
#include <cstddef>
#include <new>
#include <string_view>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/options/pytorch_doors.hpp"
#include "profiler/object_classes.hpp"
#include "profiler/object_symbols.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/unwind/unloads.hpp"
#include "profiler/unwind/walk.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint8_t unknown = 0;
constexpr std::uint8_t runtime_kind = 1;  // the CUDA runtime and driver
constexpr std::uint8_t pytorch_kind = 2;
constexpr std::uint8_t exporting_kind = 3;  // shares memory with other processes
constexpr std::uint8_t other_kind = 4;

std::uint8_t classify(std::uintptr_t address, std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("libcudart.so") || name.starts_with("libcuda.so")) {
        return runtime_kind;
    }
    if (name.starts_with("libc10_cuda.so")) {
        return pytorch_kind;
    }
    // CuPy's bindings refer to every function of the runtime.
    if (path.find("/cupy_backends/") != std::string_view::npos) {
        return other_kind;
    }
    const profiler::ObjectSymbols symbols = profiler::ObjectSymbols::at(address);
    return symbols.refers_to("cudaIpcGetMemHandle") || symbols.refers_to("cuIpcGetMemHandle")
               ? exporting_kind
               : other_kind;
}

constinit profiler::ObjectClasses classes;

std::uint8_t kind_at(std::uintptr_t address) {
    return classes.find_or_classify(
        address, [address](std::string_view path) { return classify(address, path); });
}

// Stack slot of the call's own return address; 0 outside an allocation or free.
__attribute__((tls_model("initial-exec"))) thread_local std::uintptr_t entry_slot = 0;

std::uintptr_t word_at(std::uintptr_t slot) {
    return *reinterpret_cast<const std::uintptr_t*>(slot);
}

// Cache, keyed by the call's own return address: the distance from its stack slot to that of the
// caller's return address. One word each (48 bits of address, 16 of distance), so that it is read
// and written atomically.
constexpr std::size_t cached_entries = 64;
constexpr unsigned distance_bits = 16;
constinit std::atomic<std::uint64_t> distances[cached_entries];

std::atomic<std::uint64_t>& distance_slot(std::uintptr_t address) {
    return distances[(address >> 2) % cached_entries];
}

constinit profiler::unwind::EpochTracker follower;

/// The caller's return address at the cached distance; 0 if this entry is not cached.
[[gnu::hot]] std::uintptr_t cached_caller(std::uintptr_t entry) {
    const std::uint64_t known = distance_slot(entry).load(std::memory_order_relaxed);
    const std::uintptr_t distance = known & ((1U << distance_bits) - 1);
    return known >> distance_bits == entry ? word_at(entry_slot + distance) : 0;
}

std::uint8_t cached_kind(std::uintptr_t entry) {
    if (follower.is_stale()) {
        follower.refresh([] {
            for (std::atomic<std::uint64_t>& distance : distances) {
                distance.store(0, std::memory_order_relaxed);
            }
        });
    }
    const std::uintptr_t caller = cached_caller(entry);
    const std::uint8_t kind = caller == 0 ? unknown : kind_at(caller);
    return kind == runtime_kind ? unknown : kind;
}

struct Caller {
    std::uint8_t kind = unknown;
    std::uintptr_t slot = 0;  // of the return address into the caller
};

/// The innermost frame outside memlab, the CUDA runtime and the driver, if it is within a few
/// dozen. May throw std::bad_alloc. Not inlined: the stack takes 1 KiB.
__attribute__((noinline)) Caller find_caller() {
    profiler::unwind::ShortStack stack;
    profiler::unwind::walk_stack(stack, stack.max_depth, profiler::own_code());
    if (stack.depth == 0) {
        return {};
    }
    // Where each frame's return address was: below the end of the frame that it called. Of the
    // first one outside memlab that is where memlab was entered.
    std::uintptr_t slot = word_at(entry_slot) == stack.addresses[0] ? entry_slot : 0;
    for (std::size_t i = 0; i < stack.depth; slot = stack.ends[i++] - sizeof slot) {
        const std::uint8_t kind = slot < entry_slot ? runtime_kind : kind_at(stack.addresses[i]);
        if (kind != runtime_kind) {
            return {kind, slot};
        }
    }
    return {};
}

}  // namespace

[[gnu::hot]] CallFrame::CallFrame(void* frame) : outer_(entry_slot) {
    entry_slot = reinterpret_cast<std::uintptr_t>(frame) - sizeof(std::uintptr_t);
}

[[gnu::hot]] CallFrame::~CallFrame() {
    entry_slot = outer_;
}

[[gnu::hot]] bool caller_is_known_asynchronous() {
    if (entry_slot == 0 || follower.is_stale()) {
        return false;
    }
    const std::uintptr_t caller = cached_caller(word_at(entry_slot));
    return caller != 0 && classes.known(caller) == pytorch_kind;
}

namespace {

/// unknown: not within an allocation or free, or no caller was found.
[[gnu::hot]] std::uint8_t caller_kind() {
    if (entry_slot == 0) {
        return unknown;
    }
    const std::uintptr_t entry = word_at(entry_slot);
    try {
        if (const std::uint8_t kind = cached_kind(entry); kind != unknown) {
            return kind;
        }
        const Caller caller = find_caller();
        const std::uintptr_t distance = caller.slot - entry_slot;
        if (caller.kind != unknown && distance >> distance_bits == 0) {
            distance_slot(entry).store(std::uint64_t{entry} << distance_bits | distance,
                                       std::memory_order_relaxed);
        }
        return caller.kind;
    } catch (const std::bad_alloc&) {
        return unknown;  // counts as relying on the wait
    }
}

}  // namespace

[[gnu::hot]] bool caller_relies_on_host_wait() {
    return caller_kind() != pytorch_kind;
}

[[gnu::hot]] Allocator calling_allocator() {
    switch (caller_kind()) {
        case pytorch_kind:
            return Allocator::pytorch;
        case exporting_kind:
            return Allocator::exporting;
        default:
            return Allocator::other;
    }
}

bool pytorch_tells_of_blocks() {
    constinit static profiler::unwind::FoundUntilUnload<bool> tells;
    return tells.get([] {
        return find_loaded_symbols("libc10_cuda.so", [](const profiler::ObjectSymbols& symbols) {
            return symbols.refers_to(pytorch_memory_usage) ||
                   symbols.refers_to(pytorch_signed_memory_usage);
        });
    });
}

}  // namespace memlab::interpose
