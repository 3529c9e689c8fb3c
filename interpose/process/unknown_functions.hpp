// What follows when a program finds a way into the driver that memlab does not know: a function of
// a later CUDA, a later version of one that memlab hooks, or a private table of functions.
#pragma once

#include <string>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// `disable_pooling` is called, with the reason, when a function comes to light that a pool must
/// see. What came to light before is in unknown_function_to_pools().
void tell_of_unknown_to_pools(void (*disable_pooling)(const char* why));

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
