#include "interpose/ledger/nvml_limits.hpp"

#include <dlfcn.h>

namespace memlab::interpose {

void* open_nvml(DlsymFunction find) {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return nullptr;
    }
    const auto init = reinterpret_cast<int (*)()>(find(library, "nvmlInit_v2"));
    return init != nullptr && init() == nvml::success ? library : nullptr;
}

NvmlLimits::NvmlLimits(void* library, DlsymFunction find)
    : by_uuid_(reinterpret_cast<decltype(by_uuid_)>(find(library, "nvmlDeviceGetHandleByUUID"))),
      limits_(reinterpret_cast<decltype(limits_)>(find(library, "nvmlDeviceGetMemoryLimits_v1"))) {}

std::optional<CgroupLimit> NvmlLimits::of(const std::string& uuid, const CgroupPlace& place) const {
    nvml::Device device = nullptr;
    if (!known() || place.path.empty() || by_uuid_(uuid.c_str(), &device) != nvml::success) {
        return std::nullopt;
    }
    const std::string directory = place.directory.empty() ? "/" : place.directory;
    nvml::MemoryLimits limits{.name_space = directory.c_str(), .soft = 0, .hard = 0, .used = 0};
    if (limits_(device, &limits) != nvml::success) {
        return std::nullopt;
    }
    CgroupLimit limit;
    limit.path = place.path;
    limit.limit = limits.hard;
    limit.used = limits.used;
    limit.guaranteed = limits.soft;
    return limit;
}

}  // namespace memlab::interpose
