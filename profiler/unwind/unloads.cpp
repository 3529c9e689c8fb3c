#include "profiler/unwind/unloads.hpp"

#include <link.h>

#include <atomic>

namespace memlab::profiler::unwind {
namespace {

constinit std::atomic<std::uint64_t> epoch{1};
constinit std::atomic<int> running{0};
constinit std::atomic<std::uint64_t> known_unloads{0};
__attribute__((tls_model("initial-exec"))) constinit thread_local int running_here = 0;

// How many objects the loader has unloaded so far, in all namespaces.
std::uint64_t count_unloads() {
    std::uint64_t count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            *static_cast<std::uint64_t*>(result) = info->dlpi_subs;
            return 1;  // every object says the same
        },
        &count);
    return count;
}

}  // namespace

std::uint64_t unload_epoch() {
    return epoch.load(std::memory_order_acquire);
}

bool is_unloading() {
    return running.load(std::memory_order_acquire) != 0;
}

Unloading::Unloading() {
    ++running_here;
    running.fetch_add(1);
}

Unloading::~Unloading() {
    const std::uint64_t count = count_unloads();
    if (known_unloads.exchange(count) != count) {
        epoch.fetch_add(1);
    }
    running.fetch_sub(1);
    --running_here;
}

void unload_was_missed() {
    epoch.fetch_add(1);
}

void forget_unloads_after_fork() {
    running.store(running_here);
}

}  // namespace memlab::profiler::unwind
