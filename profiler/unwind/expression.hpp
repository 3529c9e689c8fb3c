// Evaluates the DWARF expressions of .eh_frame: where a PLT stub, a signal trampoline or a
// realigned frame keeps its caller's registers.
#pragma once

#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/stack_memory.hpp"

namespace memlab::profiler::unwind {

/// The registers of one frame, as far as they are known.
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
    missing_register,  ///< it needs a register that is not known
    none,              ///< no sense can be made of it, or memory that cannot be read
};

/// `initial` is on the stack at the beginning, if given. Ends after at most 1000 operations; reads
/// only what can be read. Async-signal-safe.
Answer evaluate(Bytes expression, const Registers& registers, const StackMemory& memory,
                const std::uintptr_t* initial, std::uintptr_t* value);

}  // namespace memlab::profiler::unwind
