// Finds the unwind tables of the loaded object that contains an address, without a lock.
//
// Uses _dl_find_object (glibc >= 2.35; in libmemlab.so object_table.hpp where that is missing). The
// segments are taken from the mapped program headers, so that nothing is read in the gaps between
// them.
#pragma once

#include <cstdint>

#include "profiler/unwind/frame_tables.hpp"

namespace memlab::profiler::unwind {

enum class ObjectTables : std::uint8_t {
    no_object,  ///< the address is in no loaded object
    none,       ///< the object has no .eh_frame_hdr
    found,
};

/// The object must stay loaded during the call, as code on the calling thread's stack does.
/// Async-signal-safe.
///
/// Also detects an object at the address of an earlier one, and calls report_missed_unload().
ObjectTables find_frame_tables(std::uintptr_t address, FrameTables* tables);

enum class AddressKind : std::uint8_t {
    no_object,  ///< the address is in no loaded object
    data,       ///< in an object, but in no executable segment
    code,
};

/// The same precondition as find_frame_tables(). Async-signal-safe.
AddressKind classify_address(std::uintptr_t address);

/// Forgets all known objects: those found from now on replace none of them.
void clear_modules();

/// In a forked child: resets the state that a thread of the parent may have been changing.
void reset_modules_after_fork();

}  // namespace memlab::profiler::unwind
