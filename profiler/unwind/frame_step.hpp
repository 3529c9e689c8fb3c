// From one frame to its caller, by the tables: the way for whatever the kept rules do not say.
#pragma once

#include <cstdint>

#include "profiler/unwind/expression.hpp"
#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {

/// What the tables say about the code at one address.
struct UnwindInfo {
    enum class Source : std::uint8_t {
        tables,       ///< `row` is filled in
        no_tables,    ///< a loaded object, but nothing (readable) about this address
        no_object,    ///< code made at run time, which the loader does not know
        no_code,      ///< nothing that is executed, in an object or not
        signal_call,  ///< no tables either, but the instructions that end a signal handler
    };
    Source source;
    bool signal_frame;
    FrameRow row;
};

/// `address` lies in the instruction that the frame is at: the return address less one, or the
/// interrupted instruction's own. `instruction` is what would run next: after a call, if the two
/// differ. Async-signal-safe.
void find_unwind_info(std::uintptr_t address, std::uintptr_t instruction, UnwindInfo* knowledge);

/// Replaces a frame's registers by its caller's (rip: where that goes on). Registers that cannot be
/// found become unknown, but for rsp, rip and rbp: without them the answer is not `found`, and
/// `registers` stays as it was. `cfa` gets the frame's canonical frame address.
/// Async-signal-safe.
Answer step_by_row(const UnwindInfo& knowledge, const StackMemory& memory, Registers* registers,
                   std::uintptr_t* cfa);

/// The same for code that no tables describe, as far as the code and the frame pointer tell: what
/// runs from the present instruction up to a return, if that only takes the frame down, as in
/// trampolines; or else the frame that rbp points to. Nothing is believed but what leads to a
/// return address, behind a call in code. Async-signal-safe.
Answer step_without_tables(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa);

}  // namespace memlab::profiler::unwind
