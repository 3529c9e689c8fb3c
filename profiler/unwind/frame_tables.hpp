// Finds the description of a function's frames in an object's .eh_frame.
//
// The tables are read where the loader mapped them. Nothing in them is believed: every read stays
// within a segment of the object, and every loop moves forward, so that damaged or hostile tables
// give "no description" and nothing worse.
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

    /// From `address` to the end of its segment; empty when it lies in none.
    Bytes from(std::uintptr_t address) const;
};

/// What .eh_frame says about one range of code: an FDE with its CIE.
struct FrameDescription {
    Bytes code;  ///< the range it is about
    Bytes initial_program;
    Bytes program;
    std::uint64_t code_alignment = 1;
    std::int64_t data_alignment = 1;
    std::uint64_t return_column = 16;
    std::uint8_t pointer_encoding = 0;
    bool signal_frame = false;  ///< the frame that the kernel makes for a signal handler
};

/// False when the tables do not describe `address`, or not in a way that can be read.
/// Async-signal-safe.
bool find_frame_description(const FrameTables& tables, std::uintptr_t address,
                            FrameDescription* description);

/// Reads one FDE, which may have been found elsewhere.
bool read_frame_description(const FrameTables& tables, std::uintptr_t fde,
                            FrameDescription* description);

/// Reads a pointer in one of the DW_EH_PE_* encodings, those that need another object's data
/// excepted: then, as for bad ones, the reader fails. `data_base` is what DW_EH_PE_datarel is
/// relative to.
std::uintptr_t read_encoded_pointer(ByteReader& reader, std::uint8_t encoding,
                                    std::uintptr_t data_base);

}  // namespace memlab::profiler::unwind
