#include "interpose/control/oom_hold.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <new>
#include <string>

#include "interpose/driver/diagnostics.hpp"
#include "model/size_text.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t hold_second_ns = 1'000'000'000;

void tell(CUdevice gpu, std::uint64_t requested, std::uint64_t seconds) noexcept {
    try {
        const std::string process = std::to_string(::getpid());
        const std::string ask = "memlab-ctl " + process;
        warn("process " + process + " is out of memory (" + model::size_text(requested) +
             " on GPU " + std::to_string(gpu) + ") and waits, for " + std::to_string(seconds) +
             " s at most: look with `" + ask + " sites`, go on with `" + ask + " release`");
    } catch (const std::bad_alloc&) {  // it waits anyway
    }
}

}  // namespace

void OomHold::wait(CUdevice gpu, std::uint64_t requested) noexcept {
    const std::uint64_t seconds = this->seconds();
    if (seconds == 0) {
        return;
    }
    // Before the message: whoever reads it may release at once.
    const std::uint32_t releases = releases_.load();
    if (waiting_.fetch_add(1) == 0) {
        since_ns_.store(profiler::monotonic_ns());
        requested_.store(requested);
        gpu_.store(gpu);
    }
    tell(gpu, requested, seconds);
    const std::uint64_t until = profiler::monotonic_ns() + seconds * hold_second_ns;
    for (std::uint64_t now = profiler::monotonic_ns(); now < until && releases_.load() == releases;
         now = profiler::monotonic_ns()) {
        const timespec left = profiler::to_timespec(until - now);
        ::syscall(SYS_futex, &releases_, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, releases, &left, nullptr,
                  0);
    }
    waiting_.fetch_sub(1);
}

std::uint32_t OomHold::release() noexcept {
    const std::uint32_t waiting = waiting_.load();
    releases_.fetch_add(1);
    ::syscall(SYS_futex, &releases_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
    return waiting;
}

OomHold::State OomHold::state() const noexcept {
    return {waiting_.load(), since_ns_.load(), requested_.load(), gpu_.load()};
}

OomHold& oom_hold() {
    static constinit OomHold hold;
    return hold;
}

}  // namespace memlab::interpose
