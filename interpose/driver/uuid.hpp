// Device UUIDs.
#pragma once

#include <string>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// "GPU-xxxxxxxx-xxxx-...", as nvidia-smi prints it; empty on failure.
std::string device_uuid(CUdevice device);

}  // namespace memlab::interpose
