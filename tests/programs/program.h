/* What the programs in C99 share; those in C++ have program.hpp. */
#ifndef MEMLAB_TESTS_PROGRAMS_PROGRAM_H
#define MEMLAB_TESTS_PROGRAMS_PROGRAM_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/* A call that must succeed: else the program ends. */
static inline void check(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) {
        printf("%s: %d\n", what, (int)result);
        exit(1);
    }
}

static inline CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr pointer = 0;
    check(cuMemAlloc(&pointer, bytes), "cuMemAlloc");
    return pointer;
}

#endif
