// The epoch moves when something was unloaded, and only then.
#include "profiler/unwind/unloads.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/catch.hpp"

namespace unwind = memlab::profiler::unwind;

namespace {

void* open_plugin() {
    void* library = dlopen(MEMLAB_PLUGIN_ONE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    return library;
}

void close_as_hooked(void* library) {
    const unwind::Unloading unloading;
    CHECK(unwind::is_unloading());
    CHECK(dlclose(library) == 0);
}

}  // namespace

TEST_CASE("the epoch advances when an object is unloaded, not when a handle is closed") {
    void* first = open_plugin();
    void* second = open_plugin();
    const std::uint64_t before = unwind::unload_epoch();
    close_as_hooked(second);
    CHECK(unwind::unload_epoch() == before);
    close_as_hooked(first);
    CHECK(unwind::unload_epoch() == before + 1);
    CHECK_FALSE(unwind::is_unloading());
}

TEST_CASE("a follower is outdated after an unload until it has caught up") {
    unwind::EpochTracker follower;
    follower.refresh([] {});
    CHECK_FALSE(follower.is_stale());
    close_as_hooked(open_plugin());
    CHECK(follower.is_stale());
    int forgotten = 0;
    follower.refresh([&forgotten] { ++forgotten; });
    CHECK(forgotten == 1);
    CHECK_FALSE(follower.is_stale());
}

TEST_CASE("a child forked during unloads waits only for those of its own thread") {
    std::atomic<bool> begun{false};
    std::atomic<bool> may_end{false};
    std::thread other([&] {
        const unwind::Unloading unloading;
        begun = true;
        while (!may_end) {
            std::this_thread::yield();
        }
    });
    while (!begun) {
        std::this_thread::yield();
    }
    const bool own = GENERATE(false, true);
    const pid_t child = [own] {
        std::optional<unwind::Unloading> here;
        if (own) {
            here.emplace();
        }
        const pid_t pid = fork();
        if (pid == 0) {
            unwind::reset_unloads_after_fork();
            const bool within = unwind::is_unloading() == own;
            here.reset();
            _exit(within && !unwind::is_unloading() ? 0 : 1);
        }
        return pid;
    }();
    may_end = true;
    other.join();
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
