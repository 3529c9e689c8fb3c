// How the caller's registers follow from a frame's, at one address: the row of the table that a
// CFA program describes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/frame_tables.hpp"

namespace memlab::profiler::unwind {

/// DWARF's numbers of the registers of x86-64 that matter here.
namespace column {
constexpr std::size_t rbx = 3;
constexpr std::size_t rbp = 6;
constexpr std::size_t rsp = 7;
constexpr std::size_t rip = 16;
constexpr std::size_t count = 17;
}  // namespace column

/// Where a caller's register is to be found.
struct RegisterRule {
    enum class How : std::uint8_t {
        same,         ///< it still holds it (the stack pointer: it is the CFA)
        undefined,    ///< nowhere; for the return address: there is no caller
        at_offset,    ///< in memory at the CFA plus `offset`
        is_offset,    ///< it is the CFA plus `offset`
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

/// Plain data, so that the states that a program remembers cost no initialization.
struct FrameRow {
    RegisterRule cfa;  ///< is_expression; or in_register, plus `cfa_offset`
    std::int64_t cfa_offset;
    RegisterRule registers[column::count];
};

/// Runs the description's CFA programs up to `address`. False when they say something that cannot
/// be read or is not known. Async-signal-safe.
bool compute_frame_row(const FrameDescription& description, std::uintptr_t address, FrameRow* row);

}  // namespace memlab::profiler::unwind
