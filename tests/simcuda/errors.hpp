// Names and descriptions of the driver's error codes.
#pragma once

#include "tests/simcuda/driver_abi.hpp"

namespace memlab::simcuda {

// NULL for a code that the driver does not have.
const char* error_name(CUresult error);
const char* error_description(CUresult error);

}  // namespace memlab::simcuda
