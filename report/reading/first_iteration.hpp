// The first iteration of a loop, where it comes through other call sites than those that follow.
//
// The first call of a function that is compiled when it is needed (jax.jit) allocates the same
// memory for the same line of the program, with other frames below that line. docs/steps.md has the
// exact rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/reading/call_collector.hpp"

namespace memlab::report {

/// The stack through which the first iteration came to the call site `end`, where it is another
/// one. `once`: the call sites that return once in each iteration, in order of their first visits.
/// None: each of those that allocate needs a counterpart. May throw std::bad_alloc.
std::optional<std::uint32_t> stack_in_first_iteration(const CallCollector& calls,
                                                      const std::vector<std::uint32_t>& once,
                                                      std::uint32_t end);

}  // namespace memlab::report
