#include "profiler/thread_id.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace memlab::profiler {
namespace {

// Initial-exec: the preloaded library is in static TLS; the general model could call the loader's
// allocator from inside a hook.
__attribute__((tls_model("initial-exec"))) thread_local std::uint32_t cached_id = 0;
__attribute__((tls_model("initial-exec"))) thread_local std::uint32_t registered_id = 0;

}  // namespace

[[gnu::hot]] std::uint32_t thread_id() {
    if (cached_id == 0) {
        cached_id = static_cast<std::uint32_t>(syscall(SYS_gettid));
    }
    return cached_id;
}

[[gnu::hot]] std::uint32_t registered_thread_id() {
    return registered_id;
}

void register_thread() {
    registered_id = thread_id();
}

void reset_thread_id() {
    cached_id = 0;
    registered_id = 0;
}

}  // namespace memlab::profiler
