// Reacts when a program gets a way into the driver that memlab does not see: a function of a later
// CUDA, a later version of a hooked one, a private function table, or a library that is opened so
// that it bypasses every preload. From then on nothing is assumed: every free is fenced, and
// where the function's name says more than that it submits work, new memory is the driver's own.
// The report names each such function.
#pragma once

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

struct ReasonNotToPool {
    const char* text = nullptr;  ///< static
    bool quiet = false;          ///< for the report only: it may turn out to have no consequences
    bool of_function = false;    ///< said in the report without a pool, too
};

/// Sets the handler that is called, with the reason, when the program obtains an unknown
/// pool-critical function or opens such a library. For earlier ones see
/// reason_not_to_pool_by_unseen_calls().
void set_unknown_function_handler(void (*handler)(const ReasonNotToPool& why));

/// Sets the handler that is called with a sentence for the report about each function that memlab
/// does not know or follow and that did not end pooling: now, for those of before, and from now on.
/// The text is static. One that completes meanwhile may come twice.
void set_sentence_handler(void (*handler)(const char* sentence));

/// Whether the program has a way to begin captures that memlab does not see. Set before the
/// handlers are called.
bool captures_may_be_unseen();

/// Call before a driver function whose declaration memlab knows and whose use of memory it does not
/// follow is called. `name`: static.
void on_unfollowed_call(const char* name) noexcept;

/// Why this process must not pool because of calls that memlab does not see; null: it may.
const ReasonNotToPool* reason_not_to_pool_by_unseen_calls();

/// The driver returned this private table to the code at `caller`. Tables of the CUDA runtime and
/// the libraries that come with it submit no work (measured: all kernels of PyTorch, cuBLAS and
/// cuFFT use the driver's public functions); CUPTI's only observe, compilers' use no device. Any
/// other (OptiX) may submit work, so the work clock is distrusted from then on.
void on_private_table(const CUuuid& table, const void* caller) noexcept;

/// Whether the table is one of the CUDA runtime's or its libraries'.
bool is_runtime_table(const CUuuid& table);

}  // namespace memlab::interpose
