// Detects JIT-compiled code: executable memory outside of all loaded objects.
//
// A word on a stack that is not a return address (a coroutine's poison, remains of another stack, a
// frame whose tables are wrong) mostly points nowhere or into data. A return address into JIT code
// differs in two ways: a call instruction precedes it, and its page is executable. The first is
// checked in memory. The second is only known from /proc/self/maps, so the answer is cached per
// page; a negative answer expires after one to two seconds, as a JIT may have mapped the page
// since.
#pragma once

#include <cstdint>

namespace memlab::profiler::unwind {

/// Whether the bytes before `address` can be a call instruction. Async-signal-safe.
bool follows_call(std::uintptr_t address);

/// Reads the eight bytes of code at any address; false if they are unreadable. Code of no loaded
/// object may be unmapped by another thread at any time.
bool read_code(std::uintptr_t address, std::uintptr_t* word);

/// Whether `address` is in executable memory; true also if that is unknown (no /proc).
/// Async-signal-safe.
bool is_executable(std::uintptr_t address);

}  // namespace memlab::profiler::unwind
