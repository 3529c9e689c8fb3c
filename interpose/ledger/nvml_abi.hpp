// What memlab needs of <nvml.h>, which is not needed to build.
#pragma once

namespace memlab::interpose::nvml {

using Device = struct DeviceObject*;

constexpr int success = 0;
constexpr int insufficient_size = 7;
constexpr int function_not_found = 13;
/// A process's memory where the driver does not tell.
constexpr unsigned long long not_available = ~0ULL;

struct Memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

/// Of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
    char bus_id_legacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned pci_device_id;
    unsigned pci_subsystem_id;
    char bus_id[32];
};

/// Of nvmlDeviceGetMemoryInfo_v2. The caller sets `version`.
struct MemoryV2 {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
constexpr unsigned memory_v2 = sizeof(MemoryV2) | 2U << 24;

/// Of the functions whose names have no version.
struct ProcessV1 {
    unsigned pid;
    unsigned long long used_bytes;
};

/// Of those of version 2 and 3.
struct Process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};

/// Of nvmlDeviceGetMemoryLimits_v1 (CUDA 13.4, driver 615).
struct MemoryLimits {
    const char* name_space;  ///< the directory of a cgroup
    unsigned long long soft;
    unsigned long long hard;  ///< all bits set: none
    unsigned long long used;
};

}  // namespace memlab::interpose::nvml
