// <cuda.h> with every version of every function declared under its own exported name, instead of
// the newest one under the plain name: an interposer must know them all.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
