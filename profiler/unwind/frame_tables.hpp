// Finds the FDE of a code address in an object's .eh_frame.
//
// The tables are read where the loader mapped them, and are untrusted: every read is bounds-checked
// against the object's segments and every loop makes progress, so damaged or hostile tables give
// "no description" and nothing worse.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/bytes.hpp"

namespace memlab::profiler::unwind {

/// The readable parts of one loaded object, and its .eh_frame_hdr.
struct FrameTables {
    static constexpr std::size_t max_segments = 16;

    std::uintptr_t header = 0;  ///< .eh_frame_hdr
    std::size_t segment_count = 0;
    Bytes segments[max_segments];

    /// From `address` to the end of its segment; empty if it is in none.
    Bytes from(std::uintptr_t address) const;
};

/// What .eh_frame says about one range of code: an FDE with its CIE.
struct FrameDescription {
    Bytes code;  ///< the range that it covers
    Bytes initial_program;
    Bytes program;
    std::uint64_t code_alignment = 1;
    std::int64_t data_alignment = 1;
    std::uint64_t return_column = 16;
    std::uint8_t pointer_encoding = 0;
    bool signal_frame = false;  ///< augmentation 'S': a signal trampoline
};

/// False if the tables do not describe `address` or are malformed. Async-signal-safe.
bool find_frame_description(const FrameTables& tables, std::uintptr_t address,
                            FrameDescription* description);

/// Reads the FDE at address `fde`.
bool read_frame_description(const FrameTables& tables, std::uintptr_t fde,
                            FrameDescription* description);

/// Reads a pointer in one of the DW_EH_PE_* encodings. The reader fails for invalid ones and for
/// textrel, funcrel, aligned and indirect. `data_base`: the base of DW_EH_PE_datarel.
std::uintptr_t read_encoded_pointer(ByteReader& reader, std::uint8_t encoding,
                                    std::uintptr_t data_base);

}  // namespace memlab::profiler::unwind
