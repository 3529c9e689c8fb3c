// Whether an allocation goes to plain CUDA by MEMLAB_PASSTHROUGH.
#pragma once

#include <cstdint>

#include "interpose/options/passthrough.hpp"

namespace memlab::interpose {

/// True when a term takes `bytes`, or takes an object on the calling thread's stack. Thread-safe.
/// One set of rules per process: what was found out about an address is remembered.
bool passes_through(const Passthrough& rules, std::uint64_t bytes);

}  // namespace memlab::interpose
