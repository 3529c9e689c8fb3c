// Finds the loaded object that contains an address, without the loader's lock.
//
// dladdr and dl_iterate_phdr take that lock, which another thread may hold while it waits for
// something that our caller holds (the GIL, say). _dl_find_object (glibc >= 2.35) is lock-free;
// for older ones see unwind/object_table.hpp.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::profiler {

struct LoadedModule {
    std::uintptr_t start = 0;  ///< [start, end): the object's mapping
    std::uintptr_t end = 0;
    std::uintptr_t bias = 0;  ///< address - bias is the object's own (link-time) address
    std::string path;         ///< as the loader has it; of the program, /proc/self/exe's target
    bool is_program = false;  ///< not a library
    std::string build_id;     ///< lower-case hexadecimal; empty: none
};

/// False if `address` is in no loaded object (JIT code, unmapped). Thread-safe; takes no lock but
/// malloc's. The object must stay loaded during the call, as that of a return address on the
/// calling thread's stack does.
bool find_loaded_module(std::uintptr_t address, LoadedModule* module);

}  // namespace memlab::profiler
