// The simulated driver's control functions.
#pragma once

#include <dlfcn.h>

#include "tests/programs/program.hpp"
#include "tests/simcuda/simcuda.h"

namespace program {

/// A function of simcuda.h; null on any other driver.
template <class Function>
Function* simulated(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

/// The same, but ends the program with exit code 3 on any other driver.
template <class Function>
Function* control(const char* name) {
    auto* function = simulated<Function>(name);
    if (function == nullptr) {
        SAY("not the simulated driver: no %s\n", name);
        _exit(3);
    }
    return function;
}

}  // namespace program
