// Evaluates the DWARF expressions of .eh_frame, as used by PLT stubs, signal trampolines and
// realigned frames.
#pragma once

#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {

/// The known registers of one frame.
struct Registers {
    std::uint32_t known;  ///< a bit for each column
    std::uintptr_t values[column::count];

    bool has(std::uint64_t reg) const { return reg < column::count && (known >> reg & 1U) != 0; }
    void set(std::size_t reg, std::uintptr_t value) {
        values[reg] = value;
        known |= 1U << reg;
    }
};

enum class Answer : std::uint8_t {
    found,
    missing_register,  ///< depends on a register that is not known
    none,              ///< malformed, or depends on unreadable memory
};

/// `initial`, if not null, is pushed first. Executes at most 1000 operations. Async-signal-safe.
Answer evaluate(Bytes expression, const Registers& registers, const StackMemory& memory,
                const std::uintptr_t* initial, std::uintptr_t* value);

}  // namespace memlab::profiler::unwind
