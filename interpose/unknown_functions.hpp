// What follows when a program finds a way into the driver that memlab does not know: a function of
// a later CUDA, a later version of one that memlab hooks, or a private table of functions.
#pragma once

#include <string>

#include "interpose/cuda_abi.hpp"

namespace memlab::interpose {

/// The program has the address of a function, or of a version of one, that memlab does not know. It
/// may give work to the device: the work clock is not trusted from now on. If it is one that a pool
/// must see, new memory is not pooled either, in the session that runs or in those to come.
void unknown_function(const char* name) noexcept;

/// Why this process must not pool, as far as functions tell; empty: it may.
std::string unknown_function_to_pools();

/// The driver gave the code at `caller` this private table. Those of the CUDA runtime and of the
/// libraries that come with it give no work to a device (measured: all kernels of PyTorch, cuBLAS
/// and cuFFT pass the driver's own functions); CUPTI's watch, compilers' do not use a device.
/// Any other (OptiX) may, so that the work clock is not trusted from then on.
void private_table(const CUuuid& table, const void* caller) noexcept;

/// Whether the table is one of the runtime's.
bool is_runtime_table(const CUuuid& table);

}  // namespace memlab::interpose
