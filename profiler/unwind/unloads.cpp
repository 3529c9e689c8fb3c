#include "profiler/unwind/unloads.hpp"

#include <link.h>

#include <atomic>

#include "profiler/unwind/modules.hpp"
#include "profiler/unwind/object_table.hpp"
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

// The number of objects unloaded so far, in all namespaces.
std::uint64_t count_unloads() {
    std::uint64_t count = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            *static_cast<std::uint64_t*>(result) = info->dlpi_subs;
            return 1;  // the same for every object
        },
        &count);
    return count;
}

// Rules are cleared first, so that a thread that sees the new epoch finds no old rule.
void advance_epoch() {
    clear_rules();
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
        clear_modules();
        update_object_table_after_unload();
        advance_epoch();
    }
    running.fetch_sub(1);
    --running_here;
}

void report_missed_unload() {
    advance_epoch();
}

void reset_unloads_after_fork() {
    reset_modules_after_fork();
    reset_object_table_after_fork();
    running.store(running_here);
}

}  // namespace memlab::profiler::unwind
