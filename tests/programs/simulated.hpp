// The simulated driver's control functions, for programs that only make sense there.
#pragma once

#include <dlfcn.h>

#include "tests/programs/program.hpp"
#include "tests/simcuda/simcuda.h"

namespace program {

/// A function of simcuda.h. Ends the program with exit code 3 on any other driver.
template <class Function>
Function* control(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto* function =
        library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) {
        SAY("not the simulated driver: no %s\n", name);
        _exit(3);
    }
    return function;
}

}  // namespace program
