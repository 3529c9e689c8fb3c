// Applies MEMLAB_PASSTHROUGH to an allocation.
#pragma once

#include <cstdint>

#include "interpose/options/passthrough.hpp"

namespace memlab::interpose {

/// True when a term matches `bytes` or an object on the calling thread's stack. Thread-safe.
/// Results per address are cached, so there can be only one set of rules per process.
bool passes_through(const Passthrough& rules, std::uint64_t bytes);

}  // namespace memlab::interpose
