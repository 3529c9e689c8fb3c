// The control interface, simcuda.h.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/simcuda.h"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"

using namespace memlab::simcuda;

namespace {

class Control {
  public:
    Control() { retake_driver_lock(); }
    ~Control() { release_driver_lock(); }
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;
};

Stream* stream_of(void* handle) {
    Stream* stream = nullptr;
    return find_stream(static_cast<CUstream>(handle), stream) == CUDA_SUCCESS ? stream : nullptr;
}

// A function as a program finds it: what interposes the driver sees declared kernels too.
template <class Function>
Function* launcher(const char* name, FunctionId id) {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void* found = library != nullptr ? dlsym(library, name) : nullptr;
    if (library != nullptr) {
        dlclose(library);
    }
    if (found == nullptr) {  // linked in, not loaded
        found = function_info(id).address;
    }
    return reinterpret_cast<Function*>(found);
}

Work declared_work(uint64_t nanoseconds, const simcuda_access* accesses, size_t count) {
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_KERNEL;
    work.duration = nanoseconds;
    for (size_t i = 0; i < count; ++i) {
        work.accesses.push_back(
            {accesses[i].address, accesses[i].bytes, accesses[i].write != 0, accesses[i].owner});
    }
    return work;
}

bool names(const FunctionInfo& info, const char* function) {
    return std::strcmp(info.symbol, function) == 0 || std::strcmp(info.base, function) == 0;
}

}  // namespace

namespace memlab::simcuda {
thread_local const Work* declared_kernel = nullptr;
}

uint64_t simcuda_now(void) {
    const Control control;
    return virtual_now();
}

void simcuda_advance(uint64_t nanoseconds) {
    const Control control;
    advance(nanoseconds);
}

int simcuda_set_work_time(void* handle, uint64_t nanoseconds) {
    const Control control;
    Stream* stream = stream_of(handle);
    if (stream == nullptr) {
        return -1;
    }
    stream->work_time = nanoseconds;
    return 0;
}

int simcuda_close_stream(void* handle) {
    const Control control;
    Stream* stream = stream_of(handle);
    if (stream == nullptr) {
        return -1;
    }
    stream->closed = true;
    return 0;
}

int simcuda_open_stream(void* handle) {
    const Control control;
    Stream* stream = stream_of(handle);
    if (stream == nullptr) {
        return -1;
    }
    stream->closed = false;
    settle();
    notify_driver();
    return 0;
}

int simcuda_stream_idle(void* handle) {
    const Control control;
    const Stream* stream = stream_of(handle);
    if (stream == nullptr) {
        return -1;
    }
    settle();
    return is_done(stream->last) ? 1 : 0;
}

static int launch_declared(void* handle, Work work) {
    declared_kernel = &work;
    const CUresult result =
        launcher<decltype(cuLaunchKernel)>("cuLaunchKernel", FunctionId::cuLaunchKernel)(
            static_cast<CUfunction>(static_cast<void*>(&work)), 1, 1, 1, 1, 1, 1, 0,
            static_cast<CUstream>(handle), nullptr, nullptr);
    declared_kernel = nullptr;
    return result == CUDA_SUCCESS ? 0 : -1;
}

int simcuda_kernel(void* handle, uint64_t nanoseconds, const simcuda_access* accesses,
                   size_t count) {
    return launch_declared(handle, declared_work(nanoseconds, accesses, count));
}

int simcuda_printing_kernel(void* handle, const char* text) {
    Work work = declared_work(0, nullptr, 0);
    work.prints = text;
    return launch_declared(handle, std::move(work));
}

int simcuda_early_kernel(void* handle, uint64_t nanoseconds, const simcuda_access* accesses,
                         size_t count) {
    Work work = declared_work(nanoseconds, accesses, count);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = static_cast<CUstream>(handle);
    config.attrs = &attribute;
    config.numAttrs = 1;
    declared_kernel = &work;
    const CUresult result =
        launcher<decltype(cuLaunchKernelEx)>("cuLaunchKernelEx", FunctionId::cuLaunchKernelEx)(
            &config, static_cast<CUfunction>(static_cast<void*>(&work)), nullptr, nullptr);
    declared_kernel = nullptr;
    return result == CUDA_SUCCESS ? 0 : -1;
}

int simcuda_declare_access(void* handle, uint64_t address, uint64_t bytes, int write) {
    const simcuda_access access{address, bytes, write, 0};
    return simcuda_kernel(handle, 0, &access, 1);
}

void simcuda_owner(uint64_t address, uint64_t bytes, uint64_t owner) {
    const Control control;
    set_owner(address, bytes, owner);
}

uint64_t simcuda_races(void) {
    const Control control;
    return races();
}

void simcuda_forget_races(void) {
    const Control control;
    forget_races();
}

uint64_t simcuda_calls(const char* function) {
    const Control control;
    uint64_t sum = 0;
    for (int id = 0; id < static_cast<int>(FunctionId::count); ++id) {
        const auto function_id = static_cast<FunctionId>(id);
        if (names(function_info(function_id), function)) {
            sum += calls(function_id);
        }
    }
    return sum;
}

uint64_t simcuda_used(void) {
    const Control control;
    return find_device(0)->used.own();
}

uint64_t simcuda_used_by_all(int device, uint64_t* total) {
    const Control control;
    const Device* const found = find_device(device);
    *total = options().memory;
    return found != nullptr ? static_cast<uint64_t>(found->used) : 0;
}

int cuSimcudaUnlisted(void) {
    return 0;
}

void simcuda_write_statistics(void) {
    const Control control;
    write_statistics();
}

int simcuda_fail(const char* function, uint64_t nth, int error) {
    const Control control;
    for (int id = 0; id < static_cast<int>(FunctionId::count); ++id) {
        if (names(function_info(static_cast<FunctionId>(id)), function)) {
            if (nth == 0) {
                std::erase_if(options().faults, [function](const InjectedFault& fault) {
                    return fault.function == function;
                });
            } else {
                options().faults.push_back({function, nth, static_cast<CUresult>(error)});
            }
            return 0;
        }
    }
    return -1;
}
