// One call into the simulated driver: counted, refused where an injected fault or the process'
// state says so, and otherwise run under the driver's one lock.
//
// One lock for the whole driver is enough for a test double and makes every interleaving of its
// state explainable. It is released only where the real driver would block or call back: see
// unlocked() and wait(). A child of fork never takes it (the parent may have held it): every call
// there is answered CUDA_ERROR_NOT_INITIALIZED, as the real driver does, unless the parent had not
// initialized CUDA.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tests/simcuda/driver_abi.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::simcuda {

enum class FunctionId : int {
#define SIMCUDA_FUNCTION(symbol, base, since, flavor, body, parameters, arguments) symbol,
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_FUNCTION
    count
};

// What a null stream means in this call.
enum class Flavor { legacy, per_thread };

struct FunctionInfo {
    const char* symbol;
    const char* base;
    int since;  // CUDA version, 1000 * major + 10 * minor
    Flavor flavor;
    void* address;
};

const FunctionInfo& function_info(FunctionId id);

class Call {
  public:
    Call(FunctionId id, Flavor flavor);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    bool answered() const { return answered_; }
    CUresult answer() const { return answer_; }

  private:
    // The real driver's memory calls have no place where a thread could be cancelled.
    const threads::NoCancellation no_cancellation_;
    bool answered_ = false;
    CUresult answer_ = CUDA_SUCCESS;
    Flavor previous_;
    const char* told_ = nullptr;  // the symbol, where a tool was told of the call
};

// Of the call that this thread is in.
Flavor call_flavor();

// Runs the function without the driver's lock: for the program's callbacks.
template <typename Function>
void unlocked(Function&& function);

// Waits with the lock released until notify_driver() or the time is over (false).
bool wait_driver(std::chrono::milliseconds limit);
void notify_driver();

void release_driver_lock();
void retake_driver_lock();

template <typename Function>
void unlocked(Function&& function) {
    release_driver_lock();
    function();
    retake_driver_lock();
}

// A kernel faulted: from now on calls answer this error, in every context of the process, except
// those that only look at the host's state.
void break_device(CUresult error);

bool is_forked_child();
void set_initialized();
bool is_initialized();

}  // namespace memlab::simcuda
