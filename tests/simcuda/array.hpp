// Where an array's texels lie, for copies.
#pragma once

#include <cstdint>

#include "tests/simcuda/driver_abi.hpp"

namespace memlab::simcuda {

// False for a handle that is no array.
bool array_layout(CUarray array, uint64_t& address, uint64_t& row, uint64_t& slice);

}  // namespace memlab::simcuda
