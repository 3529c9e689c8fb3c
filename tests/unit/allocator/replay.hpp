// What an observer was told is enough to do it all again: the test of that.
#pragma once

#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "tests/unit/allocator/checking_observer.hpp"

namespace memlab::allocator::testing {

/// Drives a second pool with the events of a first one, as PoolObserver describes, on a device of
/// `total_memory`. Empty when its
/// observer was told the same, else where the two part.
std::string problem_of_replay(const PoolOptions& options, const std::vector<Seen>& events,
                              std::uint64_t total_memory);

}  // namespace memlab::allocator::testing
