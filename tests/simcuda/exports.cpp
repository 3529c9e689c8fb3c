// The exported symbols of libcuda.so.1: each a call counted and locked, then its body.
#include <pthread.h>
#include <string_view>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/checkpoint.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"
#include "tests/simcuda/tool.hpp"

extern "C" {
#define SIMCUDA_FUNCTION(symbol, base, since, flavor, body, parameters, arguments) \
    CUresult symbol parameters {                                                   \
        const memlab::simcuda::Call call(memlab::simcuda::FunctionId::symbol,      \
                                         memlab::simcuda::Flavor::flavor);         \
        return call.answered() ? call.answer() : sim_##body arguments;             \
    }
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_FUNCTION
}

namespace memlab::simcuda {
namespace {

// The addresses are this library's own definitions (it is linked with -Bsymbolic), whatever a
// preloaded library exports under the same names: what the real driver's table holds.
const FunctionInfo table[] = {
#define SIMCUDA_FUNCTION(symbol, base, since, flavor, body, parameters, arguments) \
    {#symbol, #base, since, Flavor::flavor, reinterpret_cast<void*>(&symbol)},
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_FUNCTION
};

std::mutex& driver_mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
}

std::condition_variable& driver_changed() {
    static std::condition_variable& changed = *new std::condition_variable;
    return changed;
}

std::atomic<bool> initialized{false};
std::atomic<bool> forked_child{false};
thread_local Flavor current_flavor = Flavor::legacy;
thread_local bool holds_lock = false;

void child_of_fork() {
    if (initialized) {
        forked_child = true;
    }
}

// Callable before cuInit, and in a child of fork.
bool needs_no_driver(FunctionId id) {
    switch (id) {
        case FunctionId::cuDriverGetVersion:
        case FunctionId::cuGetErrorName:
        case FunctionId::cuGetErrorString:
        case FunctionId::cuGetProcAddress:
        case FunctionId::cuGetProcAddress_v2:
        case FunctionId::cuGetExportTable:
            return true;
        default:
            return false;
    }
}

CUresult broken_with = CUDA_SUCCESS;

// What a broken device answers to the call; CUDA_SUCCESS where it makes no difference.
CUresult sticky_answer(FunctionId id) {
    const std::string_view base = function_info(id).base;
    for (const char* unaffected :
         {"cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent",
          "cuCtxGetDevice", "cuCtxGetId", "cuPointerGetAttribute", "cuPointerGetAttributes",
          "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxGetState",
          "cuInit", "cuThreadExchangeStreamCaptureMode"}) {
        if (base == unaffected) {
            return CUDA_SUCCESS;
        }
    }
    if (base.starts_with("cuDevice") && base != "cuDevicePrimaryCtxRetain") {
        return CUDA_SUCCESS;
    }
    Context* context = nullptr;
    const bool memory = base.starts_with("cuMem");
    return memory && current_context(context) == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : broken_with;
}

bool injected(FunctionId id, CUresult& error) {
    bool found = false;
    const FunctionInfo& info = function_info(id);
    for (InjectedFault& fault : options().faults) {
        if ((fault.function == info.symbol || fault.function == info.base) &&
            ++fault.seen == fault.nth) {
            error = fault.error;
            found = true;
        }
    }
    return found;
}

}  // namespace

const FunctionInfo& function_info(FunctionId id) {
    return table[static_cast<int>(id)];
}

Call::Call(FunctionId id, Flavor flavor) : previous_(current_flavor) {
    if (const simcuda_tool* tool = attached_tool()) {
        told_ = function_info(id).symbol;
        tool->driver_call(told_, 1);
    }
    begin_lockable_call(id);
    if (forked_child && !needs_no_driver(id)) {
        answered_ = true;
        answer_ = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    if (!forked_child) {
        retake_driver_lock();
    }
    current_flavor = flavor;
    count_call(id);
    if (injected(id, answer_)) {
        answered_ = true;
    } else if (function_info(id).since > options().driver_version) {
        answered_ = true;
        answer_ = CUDA_ERROR_NOT_FOUND;
    } else if (!initialized && id != FunctionId::cuInit && !needs_no_driver(id)) {
        answered_ = true;
        answer_ = CUDA_ERROR_NOT_INITIALIZED;
    } else if (broken_with != CUDA_SUCCESS && !needs_no_driver(id)) {
        answer_ = sticky_answer(id);
        answered_ = answer_ != CUDA_SUCCESS;
    }
}

void break_device(CUresult error) {
    broken_with = error;
}

Call::~Call() {
    if (holds_lock) {
        release_driver_lock();
    }
    current_flavor = previous_;
    end_lockable_call();
    const simcuda_tool* tool = told_ != nullptr ? attached_tool() : nullptr;
    if (tool != nullptr) {
        tool->driver_call(told_, 0);
    }
}

Flavor call_flavor() {
    return current_flavor;
}

void release_driver_lock() {
    holds_lock = false;
    driver_mutex().unlock();
}

void retake_driver_lock() {
    driver_mutex().lock();
    holds_lock = true;
}

bool wait_driver(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(driver_mutex(), std::adopt_lock);
    const bool notified = driver_changed().wait_for(lock, limit) == std::cv_status::no_timeout;
    lock.release();
    return notified;
}

void notify_driver() {
    driver_changed().notify_all();
}

bool is_forked_child() {
    return forked_child;
}

void set_initialized() {
    checkpoint_state.initialized = 1;
    if (!initialized.exchange(true)) {
        pthread_atfork(nullptr, nullptr, child_of_fork);
    }
}

bool is_initialized() {
    return initialized;
}

}  // namespace memlab::simcuda
