// Reacts when a program obtains an entry point into the driver that memlab does not know: a
// function of a later CUDA, a later version of a hooked one, or a private function table.
#pragma once

#include <string>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Sets the handler that is called, with the reason, when the program obtains an unknown
/// pool-critical function. For earlier ones see unknown_function_reason().
void set_unknown_function_handler(void (*disable_pooling)(const char* why));

/// Why this process must not pool because of an unknown function; empty: it may.
std::string unknown_function_reason();

/// The driver returned this private table to the code at `caller`. Tables of the CUDA runtime and
/// the libraries that come with it submit no work (measured: all kernels of PyTorch, cuBLAS and
/// cuFFT use the driver's public functions); CUPTI's only observe, compilers' use no device. Any
/// other (OptiX) may submit work, so the work clock is distrusted from then on.
void on_private_table(const CUuuid& table, const void* caller) noexcept;

/// Whether the table is one of the CUDA runtime's or its libraries'.
bool is_runtime_table(const CUuuid& table);

}  // namespace memlab::interpose
