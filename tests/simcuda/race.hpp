// The race detector: finds memory that is handed to a new owner while its old owner's work may
// still use it.
//
// Work declares what it reads and writes (copies and memsets by themselves, kernels through
// simcuda_kernel). Two accesses to one address by different owners, at least one of them a write,
// must be ordered by their vector clocks: same stream, legacy stream, event wait, context barrier,
// or the host having seen the first complete before it submitted the second. If nothing orders
// them, one line goes to stderr and the process exits with code 86 (race_exit_code) when it ends.
// An owner is one allocation of the application: the driver's allocation by default, or what a test
// says with simcuda_owner() when a pool hands out parts of one driver allocation. Accesses of one
// owner are the application's own affair.
#pragma once

#include <cstdint>

#include "tests/simcuda/timeline.hpp"

namespace memlab::simcuda {

constexpr int race_exit_code = 86;

// Owns what is given back in a stream's order.
constexpr uint64_t owner_driver = UINT64_MAX;

void record_access(const Access& access, const Stream& stream, const Clock& clock);

// The memory goes back to the driver, which does not wait for work that uses it: a race if some is
// not ordered before `clock`.
void check_giving_back(uint64_t address, uint64_t bytes, const Clock& clock);

// Says who owns a range from now on; 0 takes earlier words back.
void set_owner(uint64_t address, uint64_t bytes, uint64_t owner);

// Forgets what was accessed in a range that the driver itself has made safe to hand out again.
void forget_accesses(uint64_t address, uint64_t bytes);

// Found since the start or since the last call of forget_races().
uint64_t races();
void forget_races();

}  // namespace memlab::simcuda
