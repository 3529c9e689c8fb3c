// <cuda.h> with every version of every function declared under its own exported name: an interposer
// must define all of them, not only the newest.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "interpose/driver/newer_cuda.hpp"
