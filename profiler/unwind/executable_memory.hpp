// Whether there is code at an address that lies in no loaded object: what a JIT compiler made.
//
// A word on a stack that is no return address (a coroutine's poison, what is left of another stack,
// a frame about which the tables are wrong) mostly points nowhere or into data. Two things tell it
// from a JIT's code: the bytes before a return address are a call, and its page may be executed.
// The first is looked at where it lies. The second is in /proc/self/maps alone, so it is asked once
// for a page and kept; that a page holds no code is asked again after a second or two, for a JIT
// may have got it since.
#pragma once

#include <cstdint>

namespace memlab::profiler::unwind {

/// True when the instruction before `address` can be a call. Async-signal-safe.
bool is_behind_call(std::uintptr_t address);

/// True when `address` lies in memory that may be executed; also where nobody can tell (no /proc).
/// Async-signal-safe.
bool is_executable(std::uintptr_t address);

}  // namespace memlab::profiler::unwind
