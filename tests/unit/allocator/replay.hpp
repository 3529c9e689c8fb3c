// Tests that a pool can be replayed from the events of its observer.
#pragma once

#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "tests/unit/allocator/checking_observer.hpp"

namespace memlab::allocator::testing {

/// Drives a second pool with the events of a first one, as PoolObserver describes, on a device of
/// `total_memory` bytes. Empty if its observer got the same calls, else the first difference.
std::string problem_of_replay(const PoolOptions& options, const std::vector<Seen>& events,
                              std::uint64_t total_memory);

}  // namespace memlab::allocator::testing
