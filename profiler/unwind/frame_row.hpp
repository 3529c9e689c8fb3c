// One row of a call frame information table: how the caller's registers are restored at one
// address. Computed by running the FDE's CFA program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/frame_tables.hpp"

namespace memlab::profiler::unwind {

/// DWARF register numbers of x86-64 (System V ABI, figure 3.36).
namespace column {
constexpr std::size_t rbx = 3;
constexpr std::size_t rbp = 6;
constexpr std::size_t rsp = 7;
constexpr std::size_t rip = 16;
constexpr std::size_t count = 17;
}  // namespace column

/// How a caller's register is restored.
struct RegisterRule {
    enum class How : std::uint8_t {
        same,         ///< unchanged (the stack pointer: the CFA)
        undefined,    ///< lost; of the return address: there is no caller
        at_offset,    ///< saved at the CFA plus `offset`
        is_offset,    ///< the CFA plus `offset`
        in_register,  ///< in register number `offset`
        at_expression,
        is_expression,
    };
    How how;
    std::uint32_t expression_size;  ///< bytes
    std::int64_t offset;            ///< bytes, a register's number, or the expression's address

    Bytes expression() const {
        const auto begin = static_cast<std::uintptr_t>(offset);
        return {begin, begin + expression_size};
    }
};

/// Trivially constructible, so that the stack of remembered states costs no initialization.
struct FrameRow {
    RegisterRule cfa;  ///< is_expression; or in_register, plus `cfa_offset`
    std::int64_t cfa_offset;
    RegisterRule registers[column::count];
};

/// Runs the description's CFA programs up to `address`. False if they are malformed or use an
/// unknown instruction. Async-signal-safe.
bool compute_frame_row(const FrameDescription& description, std::uintptr_t address, FrameRow* row);

}  // namespace memlab::profiler::unwind
