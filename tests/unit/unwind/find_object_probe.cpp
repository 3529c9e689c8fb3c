// What a library that is linked with the floor of glibc 2.28 gets from _dl_find_object
// (interpose/driver/glibc_floor.cpp), for test_find_object.cpp.
#include <dlfcn.h>

#include "profiler/unwind/object_table.hpp"

extern "C" __attribute__((visibility("default"))) int probe_find_object(void* address,
                                                                        dl_find_object* result) {
    return _dl_find_object(address, result);
}

/// Whether the table of memlab's own was used.
extern "C" __attribute__((visibility("default"))) int probe_used_table() {
    return memlab::profiler::unwind::object_table_state::version.load() != 0 ? 1 : 0;
}
