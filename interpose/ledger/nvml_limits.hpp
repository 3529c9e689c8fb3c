// What NVML says that a cgroup may have of a GPU's memory: nvmlDeviceGetMemoryLimits_v1 of
// CUDA 13.4 (driver 615). Its limits are the kernel's where that has a `dmem` controller, else the
// driver's own. NVML looks at the cgroups above itself. Not for instances of MIG.
#pragma once

#include <optional>
#include <string>

#include "interpose/driver/loader.hpp"
#include "interpose/ledger/cgroup.hpp"
#include "interpose/ledger/nvml_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: as NVML's. Its calls take locks of NVML's.
class NvmlLimits {
  public:
    NvmlLimits() = default;
    /// Of a library whose nvmlInit succeeded; `find` is its dlsym.
    NvmlLimits(void* library, DlsymFunction find);

    /// Whether this NVML has the function.
    bool known() const { return by_uuid_ != nullptr && limits_ != nullptr; }

    /// Of the GPU with this UUID. None: no such function, no such GPU, no limit that it knows. May
    /// throw std::bad_alloc.
    std::optional<CgroupLimit> of(const std::string& uuid, const CgroupPlace& place) const;

  private:
    int (*by_uuid_)(const char*, nvml::Device*) = nullptr;
    int (*limits_)(nvml::Device, nvml::MemoryLimits*) = nullptr;
};

/// libnvidia-ml.so.1, initialized; null: there is none, or it does not start. It is never closed:
/// other users in the process may come to rely on it.
void* open_nvml(DlsymFunction find);

}  // namespace memlab::interpose
