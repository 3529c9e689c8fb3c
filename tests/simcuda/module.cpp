// Modules, libraries and kernels: loaded without looking into them. A kernel is a name; launching
// it takes its stream's work time and computes nothing; one that is called memlab_fault faults. The
// threads of memlab_local_40000 have 40,000 bytes of local memory each.
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

struct Module;

// Behind CUfunction and CUkernel; a kernel's handle has kernel_bit set. As the driver's, launches
// and most queries take either; cuFuncGetModule and cuKernelGetLibrary do not, and log that.
struct Function {
    std::string name;
    Module* module = nullptr;
    Context* loaded_in = nullptr;  // whose memory its code takes
    std::map<int, int> attributes;
};

struct Module {
    std::map<std::string, std::unique_ptr<Function>> functions;
    std::map<std::string, uint64_t> globals;
    Context* loaded_in = nullptr;    // a library's code is loaded with its kernels
    Context* launched_in = nullptr;  // the rest of it with the first launch
};

// A variable's size is not known without reading the image: enough for any that a test has.
constexpr uint64_t global_bytes = 64ULL << 10;

constexpr std::uintptr_t kernel_bit = 2;

bool is_kernel(const void* handle) {
    return (reinterpret_cast<std::uintptr_t>(handle) & kernel_bit) != 0;
}

struct Modules {
    std::set<Module*> modules;
    std::set<Function*> functions;
    CUlogsCallback log = nullptr;
    void* log_data = nullptr;
};

Modules& modules() {
    static Modules& once = *new Modules;
    return once;
}

template <typename Handle>
CUresult load(Handle* out, const void* image) {
    if (out == nullptr || image == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto* module = new Module;
    modules().modules.insert(module);
    *out = reinterpret_cast<Handle>(module);
    return CUDA_SUCCESS;
}

template <typename Handle>
CUresult load_in_context(Handle* out, const void* image) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (!take(*context, Taken::module)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = load(out, image);
    if (result == CUDA_SUCCESS) {
        reinterpret_cast<Module*>(*out)->loaded_in = context;
    } else {
        give_back(*context, Taken::module);
    }
    return result;
}

// Loads a kernel's code, once.
CUresult load_code(Function* function) {
    Context* context = nullptr;
    if (function->loaded_in != nullptr || current_context(context) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (!take(*context, Taken::kernel)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->loaded_in = context;
    return CUDA_SUCCESS;
}

int local_bytes(const Function& function) {
    constexpr std::string_view prefix = "memlab_local_";
    return function.name.starts_with(prefix) ? std::atoi(function.name.c_str() + prefix.size()) : 0;
}

// What a launch needs, as far as none before took it.
CUresult load_for_launch(Function* function) {
    if (CUresult error = load_code(function)) {
        return error;
    }
    Context* context = nullptr;
    if (current_context(context) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    Module& module = *function->module;
    if (module.launched_in == nullptr) {
        if (!take(*context, Taken::launch)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        module.launched_in = context;
    }
    return grow_local_memory(*context, static_cast<uint64_t>(local_bytes(*function)))
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Handle>
Module* find_module(Handle handle) {
    auto* module = reinterpret_cast<Module*>(handle);
    return modules().modules.contains(module) ? module : nullptr;
}

template <typename Handle>
CUresult unload(Handle handle) {
    Module* module = find_module(handle);
    if (module == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (const auto& [name, function] : module->functions) {
        if (function->loaded_in != nullptr && function->loaded_in->alive) {
            give_back(*function->loaded_in, Taken::kernel);
        }
        modules().functions.erase(function.get());
    }
    if (module->loaded_in != nullptr && module->loaded_in->alive) {
        give_back(*module->loaded_in, Taken::module);
    }
    if (module->launched_in != nullptr && module->launched_in->alive) {
        give_back(*module->launched_in, Taken::launch);
    }
    for (const auto& [name, address] : module->globals) {
        release_allocation(address);
    }
    modules().modules.erase(module);
    delete module;
    return CUDA_SUCCESS;
}

template <typename Out, typename Handle>
CUresult get_function(Out* out, Handle handle, const char* name) {
    Module* module = find_module(handle);
    if (module == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (out == nullptr || name == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto& function = module->functions[name];
    if (!function) {
        function = std::make_unique<Function>();
        function->name = name;
        function->module = module;
        modules().functions.insert(function.get());
    }
    *out = reinterpret_cast<Out>(function.get());
    return CUDA_SUCCESS;
}

template <typename Handle>
CUresult get_global(CUdeviceptr* dptr, size_t* bytes, Handle handle, const char* name) {
    Module* module = find_module(handle);
    if (module == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (name == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t& address = module->globals[name];
    if (address == 0 || !allocations().contains(address)) {
        if (CUresult result =
                allocate_device(root(*context), global_bytes, Kind::module, address)) {
            return result;
        }
    }
    if (dptr != nullptr) {
        *dptr = address;
    }
    if (bytes != nullptr) {
        *bytes = global_bytes;
    }
    return CUDA_SUCCESS;
}

Function* find_function(const void* handle) {
    auto* function =
        reinterpret_cast<Function*>(reinterpret_cast<std::uintptr_t>(handle) & ~kernel_bit);
    return modules().functions.contains(function) ? function : nullptr;
}

CUresult wrong_handle(std::string text) {
    if (modules().log != nullptr) {
        modules().log(modules().log_data, CU_LOG_LEVEL_ERROR, text.data(), text.size());
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult launch_declared(CUstream hStream, bool early) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    Work work = *declared_kernel;
    work.early = early;
    return enqueue(*stream, std::move(work));
}

bool may_begin_early(const CUlaunchConfig& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config.attrs[i].value.programmaticStreamSerializationAllowed != 0) {
            return true;
        }
    }
    return false;
}

CUresult launch(CUfunction f, unsigned blocks, unsigned threads, CUstream hStream) {
    Function* function = find_function(f);
    if (function == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult error = load_for_launch(function)) {
        return error;
    }
    if (blocks == 0 || threads == 0 || threads > 1024) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_KERNEL;
    work.takes_time = true;
    work.name = function->name;
    if (function->name == "memlab_fault") {
        work.action = [] { break_device(CUDA_ERROR_LAUNCH_FAILED); };
    }
    return enqueue(*stream, std::move(work));
}

CUresult function_attribute(int* pi, CUfunction_attribute attribute, const void* f) {
    const Function* function = find_function(f);
    if (function == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pi == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (auto it = function->attributes.find(attribute); it != function->attributes.end()) {
        *pi = it->second;
        return CUDA_SUCCESS;
    }
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *pi = 1024;
            break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            *pi = 32;
            break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            *pi = local_bytes(*function);
            break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            *pi = 90;
            break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *pi = 49152;
            break;
        default:
            *pi = 0;
    }
    return CUDA_SUCCESS;
}

CUresult set_function_attribute(CUfunction_attribute attribute, int value, void* f) {
    Function* function = find_function(f);
    if (function == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, CUfunction func, int block_size) {
    if (find_function(func) == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (blocks == nullptr || block_size <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *blocks = block_size > 1024 ? 0 : 2048 / ((block_size + 31) / 32 * 32);
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuModuleLoad(CUmodule* module, const char* fname) {
    return load_in_context(module, fname);
}

CUresult sim_cuModuleLoadData(CUmodule* module, const void* image) {
    return load_in_context(module, image);
}

CUresult sim_cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                                void**) {
    return load_in_context(module, image);
}

CUresult sim_cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
    return load_in_context(module, fatCubin);
}

CUresult sim_cuModuleUnload(CUmodule hmod) {
    return unload(hmod);
}

CUresult sim_cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
    if (CUresult error = get_function(hfunc, hmod, name)) {
        return error;
    }
    return load_code(find_function(*hfunc));
}

CUresult sim_cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                  const char* name) {
    return get_global(dptr, bytes, hmod, name);
}

CUresult sim_cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    if (mode == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**,
                               unsigned int, CUlibraryOption*, void**, unsigned int) {
    return load(library, code);
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option*, void**,
                                   unsigned int, CUlibraryOption*, void**, unsigned int) {
    return load(library, fileName);
}

CUresult sim_cuLibraryUnload(CUlibrary library) {
    return unload(library);
}

CUresult sim_cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
    if (CUresult error = get_function(pKernel, library, name)) {
        return error;
    }
    *pKernel = reinterpret_cast<CUkernel>(reinterpret_cast<std::uintptr_t>(*pKernel) | kernel_bit);
    return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
    const Function* function = find_function(kernel);
    if (function == nullptr || !is_kernel(kernel)) {
        return wrong_handle("Returning 400 (CUDA_ERROR_INVALID_HANDLE) from cuKernelGetLibrary");
    }
    if (pLib == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pLib = reinterpret_cast<CUlibrary>(function->module);
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
    if (find_module(library) == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pMod == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pMod = reinterpret_cast<CUmodule>(library);
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                const char* name) {
    return get_global(dptr, bytes, library, name);
}

CUresult sim_cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                 const char* name) {
    return get_global(dptr, bytes, library, name);
}

CUresult sim_cuFuncLoad(CUfunction function) {
    Function* const found = find_function(function);
    return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : load_code(found);
}

CUresult sim_cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
    if (find_function(kernel) == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (pFunc == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult error = load_code(find_function(kernel))) {
        return error;
    }
    *pFunc = reinterpret_cast<CUfunction>(find_function(kernel));
    return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
    return function_attribute(pi, attrib, kernel);
}

CUresult sim_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice) {
    return set_function_attribute(attrib, val, kernel);
}

CUresult sim_cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return function_attribute(pi, attrib, hfunc);
}

CUresult sim_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    return set_function_attribute(attrib, value, hfunc);
}

CUresult sim_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) {
    return find_function(hfunc) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult sim_cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
    const Function* function = find_function(hfunc);
    if (function == nullptr || is_kernel(hfunc)) {
        return wrong_handle("Cannot pass CUkernel handle to this API");
    }
    if (hmod == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *hmod = reinterpret_cast<CUmodule>(function->module);
    return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetName(const char** name, CUfunction hfunc) {
    const Function* function = find_function(hfunc);
    if (function == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (name == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name = function->name.c_str();
    return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetName(const char** name, CUkernel hfunc) {
    return sim_cuFuncGetName(name, reinterpret_cast<CUfunction>(hfunc));
}

CUresult sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                            unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                            unsigned int blockDimZ, unsigned int, CUstream hStream, void**,
                            void**) {
    if (declared_kernel != nullptr && static_cast<void*>(f) == declared_kernel) {
        return launch_declared(hStream, false);
    }
    const bool empty = gridDimX == 0 || gridDimY == 0 || gridDimZ == 0;
    return launch(f, empty ? 0 : 1, blockDimX * blockDimY * blockDimZ, hStream);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                              void** extra) {
    if (config == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (declared_kernel != nullptr && static_cast<void*>(f) == declared_kernel) {
        return launch_declared(config->hStream, may_begin_early(*config));
    }
    return sim_cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
                              config->blockDimX, config->blockDimY, config->blockDimZ,
                              config->sharedMemBytes, config->hStream, kernelParams, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX,
                                       unsigned int blockDimY, unsigned int blockDimZ,
                                       unsigned int sharedMemBytes, CUstream hStream,
                                       void** kernelParams) {
    return sim_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                              sharedMemBytes, hStream, kernelParams, nullptr);
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                         int blockSize, size_t) {
    return occupancy(numBlocks, func, blockSize);
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                                  int blockSize, size_t,
                                                                  unsigned int) {
    return occupancy(numBlocks, func, blockSize);
}

CUresult sim_cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                              CUoccupancyB2DSize, size_t, int) {
    if (find_function(func) == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (minGridSize == nullptr || blockSize == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *minGridSize = 264;
    *blockSize = 1024;
    return CUDA_SUCCESS;
}

CUresult sim_cuProfilerStart() {
    return CUDA_SUCCESS;
}

CUresult sim_cuProfilerStop() {
    return CUDA_SUCCESS;
}

CUresult sim_cuLogsRegisterCallback(CUlogsCallback callback, void* data,
                                    CUlogsCallbackHandle* out) {
    if (callback == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    modules().log = callback;
    modules().log_data = data;
    if (out != nullptr) {
        *out = reinterpret_cast<CUlogsCallbackHandle>(&modules());
    }
    return CUDA_SUCCESS;
}
