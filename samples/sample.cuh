// What the samples share: checked CUDA calls, and a verification that holds on a GPU and is not
// fooled by the simulated driver, on which kernels compute nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace sample {

/// Ends the program with one clear line when a CUDA call failed.
inline void check(cudaError_t error, const char* call, const char* file, int line) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s:%d: %s failed: %s\n", file, line, call, cudaGetErrorString(error));
        std::exit(1);
    }
}

/// Fills device memory with a pattern that no result of a sample has. A kernel that ran has
/// overwritten it.
inline constexpr unsigned char untouched_byte = 0xFF;

/// True when not one byte of `count` values was written since they were filled with
/// untouched_byte: no kernel computes here, so there is no result to verify.
template <typename T>
bool untouched(const T* values, std::size_t count) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    for (std::size_t i = 0; i < count * sizeof(T); ++i) {
        if (bytes[i] != untouched_byte) {
            return false;
        }
    }
    return true;
}

/// Ends the program with one clear line when a result of the GPU is not what it must be.
inline void require(bool condition, const char* what) {
    if (!condition) {
        std::fprintf(stderr, "wrong result: %s\n", what);
        std::exit(1);
    }
}

}  // namespace sample

#define CHECK(call) ::sample::check((call), #call, __FILE__, __LINE__)
