// Devices by their lasting name.
#pragma once

#include <string>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// "GPU-xxxxxxxx-xxxx-...", as nvidia-smi prints it; empty when the driver does not tell.
std::string uuid_of(CUdevice device);

}  // namespace memlab::interpose
