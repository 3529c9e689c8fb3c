// Which loaded object an address belongs to, found without the loader's lock.
//
// dladdr and dl_iterate_phdr wait for the loader's lock, which another thread may hold while it
// waits for something that our caller holds (a Python thread with the GIL, say). _dl_find_object
// (glibc >= 2.35) is lock-free by design.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::profiler {

struct LoadedModule {
    std::uintptr_t start = 0;  ///< [start, end): the object's mapping
    std::uintptr_t end = 0;
    std::uintptr_t bias = 0;  ///< address - bias is the object's own (link-time) address
    std::string path;         ///< as the loader knows it; the executable's own path for the program
    bool is_program = false;  ///< not a library
    std::string build_id;     ///< lower-case hexadecimal; empty when there is none
};

/// False when no loaded object holds `address` (JIT code, unmapped). Thread-safe, lock-free but for
/// the C library's allocator. The object must stay loaded during the call: true for a return
/// address on the calling thread's stack.
bool find_loaded_module(std::uintptr_t address, LoadedModule* module);

}  // namespace memlab::profiler
