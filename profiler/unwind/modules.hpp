// The tables of the loaded object that an address lies in.
//
// Found with _dl_find_object (glibc >= 2.35, memlab's floor), which takes no lock. The segments
// come from the program headers as they are mapped, so that nothing is read in the holes between
// them.
#pragma once

#include <cstdint>

#include "profiler/unwind/frame_tables.hpp"

namespace memlab::profiler::unwind {

enum class ObjectTables : std::uint8_t {
    no_object,  ///< no loaded object holds the address
    none,       ///< one without .eh_frame_hdr
    found,
};

/// The object must stay loaded meanwhile: true for code on the calling thread's stack.
/// Async-signal-safe.
///
/// Also notices when the object lies where another one was before (unload_was_missed()).
ObjectTables find_frame_tables(std::uintptr_t address, FrameTables* tables);

enum class CodeAt : std::uint8_t {
    no_object,  ///< no loaded object holds the address
    data,       ///< one does, but not in a segment that is executed
    code,
};

/// As find_frame_tables(), of which it needs no answer. Async-signal-safe.
CodeAt code_at(std::uintptr_t address);

/// What is there from now on took nobody's place.
void forget_modules();

/// In a forked child: whoever was in the middle of it is not there.
void forget_modules_after_fork();

}  // namespace memlab::profiler::unwind
