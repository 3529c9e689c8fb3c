// What nvcc's generated code calls: registration of images, kernels and variables, and launches.
//
// Registration happens in static constructors and only remembers; an image is loaded into the
// driver at the first use of something in it.
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simcuda/cudart/runtime.hpp"

namespace memlab::simcuda::cudart {
namespace {

struct Image {
    const void* data = nullptr;
    CUlibrary library = nullptr;
};

struct Kernel {
    Image* image = nullptr;
    std::string name;
    CUkernel loaded = nullptr;
};

struct Variable {
    Image* image = nullptr;
    std::string name;
    size_t bytes = 0;
};

struct Registry {
    std::recursive_mutex mutex;
    std::map<Image*, Image*> images;
    std::map<const void*, Kernel> kernels;  // by the host stub's address
    std::map<const void*, Variable> variables;
    std::map<const void*, Kernel*> handles;  // cudaKernel_t is the Kernel's address
};

Registry& registry() {
    static Registry& once = *new Registry;
    return once;
}

struct Configuration {
    dim3 grid;
    dim3 block;
    size_t shared;
    cudaStream_t stream;
};

// What <<<...>>> pushes and the stub of the same thread pops.
thread_local Configuration configurations[16];
thread_local int configured = 0;

CUresult load(const Driver& driver, Image& image) {
    if (image.library != nullptr) {
        return CUDA_SUCCESS;
    }
    return driver.cuLibraryLoadData(&image.library, image.data, nullptr, nullptr, 0, nullptr,
                                    nullptr, 0);
}

CUresult load(const Driver& driver, Kernel& kernel) {
    if (kernel.loaded != nullptr) {
        return CUDA_SUCCESS;
    }
    const CUresult result = load(driver, *kernel.image);
    return result != CUDA_SUCCESS ? result
                                  : driver.cuLibraryGetKernel(&kernel.loaded, kernel.image->library,
                                                              kernel.name.c_str());
}

cudaError_t find_either(const Driver& driver, const void* function, CUkernel& kernel) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (auto it = all.handles.find(function); it != all.handles.end()) {
        const CUresult result = load(driver, *it->second);
        kernel = it->second->loaded;
        return convert(result);
    }
    return find_kernel(driver, function, kernel);
}

CUresult launch(const Driver& d, const void* function, dim3 grid, dim3 block, void** args,
                size_t shared, cudaStream_t stream, bool cooperative = false) {
    CUkernel kernel = nullptr;
    if (const cudaError_t error = find_either(d, function, kernel)) {
        return static_cast<CUresult>(error);
    }
    auto* f = reinterpret_cast<CUfunction>(kernel);
    const auto bytes = static_cast<unsigned>(shared);
    const CUresult result = cooperative
                                ? d.cuLaunchCooperativeKernel(f, grid.x, grid.y, grid.z, block.x,
                                                              block.y, block.z, bytes, stream, args)
                                : d.cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y,
                                                   block.z, bytes, stream, args, nullptr);
    // The runtime names a wrong shape of the launch its own way.
    return result == CUDA_ERROR_INVALID_VALUE ? static_cast<CUresult>(cudaErrorInvalidConfiguration)
                                              : result;
}

}  // namespace

cudaError_t find_kernel(const Driver& driver, const void* host, CUkernel& kernel) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto it = all.kernels.find(host);
    if (it == all.kernels.end()) {
        return cudaErrorInvalidDeviceFunction;
    }
    const CUresult result = load(driver, it->second);
    kernel = it->second.loaded;
    return convert(result);
}

cudaError_t find_symbol(const Driver& driver, const void* host, CUdeviceptr& address,
                        size_t& bytes) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto it = all.variables.find(host);
    if (it == all.variables.end()) {
        return cudaErrorInvalidSymbol;
    }
    if (const CUresult result = load(driver, *it->second.image)) {
        return convert(result);
    }
    const CUresult result = driver.cuLibraryGetGlobal(&address, nullptr, it->second.image->library,
                                                      it->second.name.c_str());
    bytes = it->second.bytes;
    return convert(result);
}

void forget_images() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (auto& [host, kernel] : all.kernels) {
        kernel.loaded = nullptr;
        kernel.image->library = nullptr;
    }
    for (auto& [host, variable] : all.variables) {
        variable.image->library = nullptr;
    }
}

}  // namespace memlab::simcuda::cudart

using namespace memlab::simcuda::cudart;

extern "C" {

// The wrapper that nvcc passes: magic, version, the fat binary itself, and a file name.
struct FatBinaryWrapper {
    int magic;
    int version;
    const void* data;
    void* file_name;
};

void** __cudaRegisterFatBinary(void* fatCubin) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto* image = new Image;
    image->data = static_cast<const FatBinaryWrapper*>(fatCubin)->data;
    all.images.emplace(image, image);
    return reinterpret_cast<void**>(image);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** fatCubinHandle) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto* image = reinterpret_cast<Image*>(fatCubinHandle);
    std::erase_if(all.handles, [&](const auto& entry) { return entry.second->image == image; });
    std::erase_if(all.kernels, [&](const auto& entry) { return entry.second.image == image; });
    std::erase_if(all.variables, [&](const auto& entry) { return entry.second.image == image; });
    all.images.erase(image);
    delete image;
}

char __cudaInitModule(void**) {
    return 1;
}

void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char*,
                            const char* deviceName, int, uint3*, uint3*, dim3*, dim3*, int*) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    Kernel& kernel = all.kernels[hostFun];
    kernel.image = reinterpret_cast<Image*>(fatCubinHandle);
    kernel.name = deviceName;
    all.handles[&kernel] = &kernel;
}

void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char*, const char* deviceName, int,
                       size_t size, int, int) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.variables[hostVar] = {reinterpret_cast<Image*>(fatCubinHandle), deviceName, size};
}

void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress, char*,
                              const char* deviceName, int, size_t size, int, int) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.variables[hostVarPtrAddress] = {reinterpret_cast<Image*>(fatCubinHandle), deviceName, size};
}

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void* stream) {
    if (configured == 16) {
        return static_cast<unsigned>(note(cudaErrorLaunchOutOfResources));
    }
    configurations[configured++] = {gridDim, blockDim, sharedMem,
                                    static_cast<cudaStream_t>(stream)};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem,
                                       void* stream) {
    if (configured == 0) {
        return note(cudaErrorMissingConfiguration);
    }
    const Configuration& top = configurations[--configured];
    *gridDim = top.grid;
    *blockDim = top.block;
    *sharedMem = top.shared;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* entry) {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    auto it = all.kernels.find(entry);
    if (handle == nullptr || it == all.kernels.end()) {
        return note(cudaErrorInvalidDeviceFunction);
    }
    *handle = reinterpret_cast<cudaKernel_t>(&it->second);
    return cudaSuccess;
}

RUNTIME(cudaGetKernel, (cudaKernel_t * kernelPtr, const void* entryFuncAddr),
        { return static_cast<CUresult>(__cudaGetKernel(kernelPtr, entryFuncAddr)); })

RUNTIME_PAIR(__cudaLaunchKernel, _ptsz,
             (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
              cudaStream_t stream),
             { return launch(d, kernel, gridDim, blockDim, args, sharedMem, stream); })
RUNTIME_PAIR(cudaLaunchKernel, _ptsz,
             (const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
              cudaStream_t stream),
             { return launch(d, func, gridDim, blockDim, args, sharedMem, stream); })
RUNTIME_PAIR(cudaLaunchCooperativeKernel, _ptsz,
             (const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
              cudaStream_t stream),
             { return launch(d, func, gridDim, blockDim, args, sharedMem, stream, true); })
RUNTIME_PAIR(cudaLaunchKernelExC, _ptsz,
             (const cudaLaunchConfig_t* config, const void* func, void** args), {
                 CUkernel kernel = nullptr;
                 if (config == nullptr) {
                     return CUDA_ERROR_INVALID_VALUE;
                 }
                 if (const cudaError_t error = find_either(d, func, kernel)) {
                     return static_cast<CUresult>(error);
                 }
                 CUlaunchConfig c{};
                 c.gridDimX = config->gridDim.x;
                 c.gridDimY = config->gridDim.y;
                 c.gridDimZ = config->gridDim.z;
                 c.blockDimX = config->blockDim.x;
                 c.blockDimY = config->blockDim.y;
                 c.blockDimZ = config->blockDim.z;
                 c.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
                 c.hStream = config->stream;
                 c.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
                 c.numAttrs = config->numAttrs;
                 return d.cuLaunchKernelEx(&c, reinterpret_cast<CUfunction>(kernel), args, nullptr);
             })

RUNTIME(cudaFuncGetAttributes, (cudaFuncAttributes * attr, const void* func), {
    CUkernel kernel = nullptr;
    if (const cudaError_t error = find_either(d, func, kernel)) {
        return static_cast<CUresult>(error);
    }
    std::memset(attr, 0, sizeof *attr);
    const auto get = [&](CUfunction_attribute which) {
        int value = 0;
        d.cuKernelGetAttribute(&value, which, kernel, thread_device());
        return value;
    };
    attr->sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    attr->constSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
    attr->localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    attr->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    attr->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    attr->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    attr->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    attr->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return CUDA_SUCCESS;
})

RUNTIME(cudaFuncSetAttribute, (const void* func, cudaFuncAttribute attr, int value), {
    CUkernel kernel = nullptr;
    if (const cudaError_t error = find_either(d, func, kernel)) {
        return static_cast<CUresult>(error);
    }
    return d.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attr), value, kernel,
                                  thread_device());
})

RUNTIME(cudaFuncSetCacheConfig, (const void* func, cudaFuncCache), {
    CUkernel kernel = nullptr;
    return static_cast<CUresult>(find_either(d, func, kernel));
})

RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int* numBlocks, const void* func, int blockSize, size_t dynamicSMemSize,
         unsigned int flags),
        {
            CUkernel kernel = nullptr;
            if (const cudaError_t error = find_either(d, func, kernel)) {
                return static_cast<CUresult>(error);
            }
            return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                numBlocks, reinterpret_cast<CUfunction>(kernel), blockSize, dynamicSMemSize, flags);
        })
RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        (int* numBlocks, const void* func, int blockSize, size_t dynamicSMemSize), {
            CUkernel kernel = nullptr;
            if (const cudaError_t error = find_either(d, func, kernel)) {
                return static_cast<CUresult>(error);
            }
            return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                numBlocks, reinterpret_cast<CUfunction>(kernel), blockSize, dynamicSMemSize, 0);
        })

}  // extern "C"
