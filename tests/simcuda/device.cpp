// Devices: how many, what they are called, how much memory they have. The figures imitate an H100;
// each device has its own UUID and PCI address.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {

std::vector<Device>& devices() {
    static std::vector<Device>& all = *new std::vector<Device>;
    return all;
}

Device* find_device(CUdevice ordinal) {
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices().size()) {
        return nullptr;
    }
    return &devices()[static_cast<size_t>(ordinal)];
}

void create_devices() {
    for (int ordinal = 0; ordinal < options().devices; ++ordinal) {
        Device device;
        device.ordinal = ordinal;
        device.used.share(ordinal);
        devices().push_back(device);
    }
}

namespace {

CUuuid uuid_of(int ordinal) {
    CUuuid uuid;
    std::memcpy(uuid.bytes, "simcuda\0\0\0\0\0\0\0\0", 16);
    uuid.bytes[15] = static_cast<char>(ordinal);
    return uuid;
}

int attribute_of(int ordinal, CUdevice_attribute attribute) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
            return 1024;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
            return 64;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
            return 2147483647;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
            return 65535;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
            return 49152;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            return 232448;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
            return 233472;
        case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
            return 65536;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
            return 32;
        case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
            return 2147483647;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
            return 65536;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
            return 1980000;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
            return 2619000;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
            return 5120;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
            return 52428800;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
            return 2048;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
            return 32;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
            return 512;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
            return 32;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            return 132;
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
            return 3;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
            return ordinal + 1;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            return 9;
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
            return options().concurrent_managed ? 1 : 0;
        case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
            return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
        case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
        case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
        case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        case CU_DEVICE_ATTRIBUTE_NUMA_ID:
        case CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID:
        case CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED:
            return 0;
        default:
            return 1;  // the many "is it supported" questions
    }
}

}  // namespace
}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuInit(unsigned int Flags) {
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (options().devices == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    if (!is_initialized()) {
        create_devices();
        set_initialized();
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuDriverGetVersion(int* driverVersion) {
    if (driverVersion == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = options().driver_version;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetCount(int* count) {
    if (count == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = options().devices;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGet(CUdevice* device, int ordinal) {
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(ordinal) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char* name, int len, CUdevice dev) {
    if (name == nullptr || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    std::snprintf(name, static_cast<size_t>(len), "Simulated CUDA device");
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
    if (uuid == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *uuid = uuid_of(dev);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
    return sim_cuDeviceGetUuid(uuid, dev);
}

CUresult sim_cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
    if (bytes == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes = options().memory;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
    size_t total = 0;
    const CUresult result = sim_cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &total, dev);
    if (result == CUDA_SUCCESS) {
        *bytes = static_cast<unsigned>(std::min<size_t>(total, UINT32_MAX));
    }
    return result;
}

CUresult sim_cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
    if (pi == nullptr || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pi = attribute_of(dev, attrib);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
    if (major == nullptr || minor == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
    if (pciBusId == nullptr || len < 13) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                  static_cast<unsigned>(dev + 1));
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
    unsigned domain = 0;
    unsigned bus = 0;
    if (dev == nullptr || pciBusId == nullptr ||
        std::sscanf(pciBusId, "%x:%x:", &domain, &bus) != 2) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int ordinal = static_cast<int>(bus) - 1;
    if (domain != 0 || find_device(ordinal) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = ordinal;
    return CUDA_SUCCESS;
}
