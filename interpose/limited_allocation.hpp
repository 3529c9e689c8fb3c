// One allocation that the driver serves, kept within the device's limit.
#pragma once

#include "interpose/device_memory.hpp"

namespace memlab::interpose {

/// Runs `real`, or answers CUDA_ERROR_OUT_OF_MEMORY where its memory is past the limit. `address`
/// reads its result. A call that a capture forbids gets the driver's answer to that.
CUresult allocate_within_limit(Session& session, const DriverAllocation& allocation,
                               FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address);

}  // namespace memlab::interpose
