// Out-of-memory events: recorded, the first one in a process is explained on stderr, and the thread
// waits if that is wanted (OomHold) before the program gets its error.
#pragma once

#include <string>

#include "interpose/driver/driver.hpp"
#include "interpose/memory/memory.hpp"
#include "model/oom_explanation.hpp"

namespace memlab::interpose {

/// `context` is where the memory was to come from; null: does nothing. May take milliseconds, and
/// as long as OomHold waits; call without any lock held. Never throws.
void report_oom(Memory& memory, Api api, std::uint32_t stack, Context* context,
                trace::MemoryKind kind, std::uint64_t requested, std::uint64_t largest_free_block,
                CUresult error) noexcept;

/// The same of an allocator of the program's (Suballocators), which has a name. Of `oom`, what it
/// knows is filled in: device, context, API, stack, kind and bytes.
void report_suballocator_oom(Memory& memory, trace::OomEvent oom, CUdevice gpu,
                             const char* allocator) noexcept;

/// The frame that stands for a call site: the innermost one of the program's Python code, else the
/// first function that is not CUDA's, "name+0x12 (libfoo.so+0x1234)". Empty: not known. May throw
/// std::bad_alloc.
std::string place_text(const model::OomHolder& holder);

}  // namespace memlab::interpose
