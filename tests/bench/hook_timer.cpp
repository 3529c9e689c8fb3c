// Preloaded in front of libmemlab.so, or without it: how long PyTorch's calls of it take, by the
// time-stamp counter.
//
// In a training program this tells two builds apart in seconds, where the whole step's time needs
// minutes of processes side by side. It does not see what memlab's code and data evict from the
// caches.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "tests/programs/pytorch/c10.hpp"

namespace {

enum Hook : std::size_t { alloc, free_block, edge, hooks };

struct Totals {
    std::uint64_t ticks[hooks];
    std::uint64_t calls[hooks];
};

}  // namespace

extern "C" {

// PyTorch makes these calls one after the other, mostly from two threads in turns: not atomic.
__attribute__((visibility("default"))) Totals hook_timer_totals;

__attribute__((visibility("default"))) std::uint64_t hook_timer_now() {
    return __builtin_ia32_rdtsc();
}

}  // extern "C"

namespace {

template <class Call>
void time_call(Hook hook, const Call& call) {
    const std::uint64_t before = __builtin_ia32_rdtsc();
    call();
    hook_timer_totals.ticks[hook] += __builtin_ia32_rdtsc() - before;
    ++hook_timer_totals.calls[hook];
}

/// The function of that name: memlab's, else that of PyTorch's library, which Python loads without
/// making its names known to others.
template <class Function>
Function* find(const char* name, const char* library) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        found = loaded != nullptr ? dlsym(loaded, name) : nullptr;
    }
    return reinterpret_cast<Function*>(found);
}

struct Edge;

}  // namespace

namespace c10 {

__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(
    void* pointer, std::int64_t bytes, Total allocated, Total reserved, Device device) {
    using Function = void(void*, std::int64_t, Total, Total, Device);
    static Function* real =
        find<Function>("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "libc10.so");
    if (real != nullptr) {
        time_call(bytes > 0 ? alloc : free_block,
                  [&] { real(pointer, bytes, allocated, reserved, device); });
    }
}

}  // namespace c10

extern "C" __attribute__((visibility("default"))) void hook_timer_edge(
    const void* tensor,
    Edge* to) asm("_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");

extern "C" void hook_timer_edge(const void* tensor, Edge* to) {
    using Function = void(const void*, Edge*);
    static Function* real = find<Function>(
        "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE", "libtorch_cpu.so");
    if (real != nullptr) {
        time_call(edge, [&] { real(tensor, to); });
    }
}
