#include "profiler/unwind/unloads.hpp"

#include <link.h>

#include <atomic>

#include "profiler/unwind/modules.hpp"
#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {

namespace unload_state {
constinit std::atomic<std::uint64_t> epoch{1};
constinit std::atomic<int> running{0};
}  // namespace unload_state

namespace {

using unload_state::epoch;
using unload_state::running;

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

// The rules first: who sees the new epoch finds none of the old.
void move_on() {
    forget_rules();
    epoch.fetch_add(1);
}

}  // namespace

Unloading::Unloading() {
    ++running_here;
    running.fetch_add(1);
}

Unloading::~Unloading() {
    const std::uint64_t count = count_unloads();
    if (known_unloads.exchange(count) != count) {
        forget_modules();
        move_on();
    }
    running.fetch_sub(1);
    --running_here;
}

void unload_was_missed() {
    move_on();
}

void forget_unloads_after_fork() {
    forget_modules_after_fork();
    running.store(running_here);
}

}  // namespace memlab::profiler::unwind
