#include "profiler/thread_id.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace memlab::profiler {
namespace {

// Initial-exec: the preload library is in the static TLS block from the start, and the general
// model would call the loader's allocator from inside a hook.
__attribute__((tls_model("initial-exec"))) thread_local std::uint32_t cached_id = 0;
__attribute__((tls_model("initial-exec"))) thread_local std::uint32_t introduced_id = 0;

}  // namespace

[[gnu::hot]] std::uint32_t thread_id() {
    if (cached_id == 0) {
        cached_id = static_cast<std::uint32_t>(syscall(SYS_gettid));
    }
    return cached_id;
}

[[gnu::hot]] std::uint32_t introduced_thread_id() {
    return introduced_id;
}

void introduce_thread() {
    introduced_id = thread_id();
}

void forget_thread_id() {
    cached_id = 0;
    introduced_id = 0;
}

}  // namespace memlab::profiler
