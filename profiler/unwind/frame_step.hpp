// The slow path of unwinding one frame: by .eh_frame, or by heuristics where there are no tables.
#pragma once

#include <cstdint>

#include "profiler/unwind/expression.hpp"
#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {

/// What is known about the code at one address.
struct UnwindInfo {
    enum class Source : std::uint8_t {
        tables,       ///< `row` is filled in
        no_tables,    ///< a loaded object without (readable) tables for this address
        no_object,    ///< executable memory outside of all objects: code generated at run time
        no_code,      ///< not executable
        signal_call,  ///< no tables, but the instructions of a signal trampoline (rt_sigreturn)
    };
    Source source;
    bool signal_frame;
    FrameRow row;
};

/// `address` is within the frame's current instruction: the return address less one, or the address
/// of an interrupted instruction. `instruction` is the next one to run; if the two differ, it
/// follows a call. Async-signal-safe.
void find_unwind_info(std::uintptr_t address, std::uintptr_t instruction, UnwindInfo* info);

/// Replaces a frame's registers by its caller's. Registers that cannot be restored become unknown;
/// if rsp, rip or rbp is among them, the answer is not `found` and `registers` is unchanged. `cfa`
/// gets the frame's canonical frame address. Async-signal-safe.
Answer step_by_row(const UnwindInfo& info, const StackMemory& memory, Registers* registers,
                   std::uintptr_t* cfa);

/// The same for code without tables. Simulates the instructions up to a return if they only tear
/// the frame down, as in trampolines; else follows the frame pointer. Either is accepted only if it
/// leads to a return address that follows a call instruction in code. Async-signal-safe.
Answer step_without_tables(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa);

}  // namespace memlab::profiler::unwind
