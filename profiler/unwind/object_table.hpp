// Which loaded object contains an address, where the C library has no _dl_find_object (glibc
// before 2.35).
//
// A sorted table of the loader's objects, read without a lock. It is made by dl_iterate_phdr: when
// it is first used, when dlsym or dlclose is called and the loader's list has changed, and when an
// address is in none of its objects. The last happens at the first call from a library that was
// loaded and entered without dlsym; it takes the lock of the loader's list, as the C++ runtime does
// there at each throw. memlab's dlopen does not learn what was loaded: it jumps to the real one,
// which searches by its caller's RUNPATH.
//
// Objects of other namespaces (dlmopen) are not in it. A library that is unloaded behind memlab's
// back stays in it until the next update.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

namespace memlab::profiler::unwind {

/// As _dl_find_object: 0 and *result filled in, or -1. Async-signal-safe except for the update,
/// which a handler that interrupted one skips.
int find_in_object_table(std::uintptr_t address, dl_find_object* result) noexcept;

namespace object_table_state {
/// 0 until the table is first used.
extern constinit std::atomic<std::uint64_t> version;
void update() noexcept;
void update_after_unload() noexcept;
}  // namespace object_table_state

/// Brings the table up to date if it is in use. Thread-safe. Always inlined: one caller is compiled
/// without a sanitizer's instrumentation, since it runs before the sanitizer is initialized.
[[gnu::always_inline]] inline void update_object_table() noexcept {
    if (object_table_state::version.load(std::memory_order_relaxed) != 0) {
        object_table_state::update();
    }
}

/// The same after a library was unloaded. Where another thread's update takes too long to wait for,
/// no object except memlab's own is found until one has been made: that thread may have seen the
/// library. Its own is, since exceptions and libgcc's walks begin there, which end the program
/// where they find nothing.
inline void update_object_table_after_unload() noexcept {
    if (object_table_state::version.load(std::memory_order_relaxed) != 0) {
        object_table_state::update_after_unload();
    }
}

/// In a forked child: drops the update that a thread of the parent may have been making.
void reset_object_table_after_fork() noexcept;

}  // namespace memlab::profiler::unwind
