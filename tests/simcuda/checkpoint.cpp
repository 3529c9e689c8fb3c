#include "tests/simcuda/checkpoint.hpp"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "tests/simcuda/options.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {

CheckpointState checkpoint_state;

namespace {

constexpr uint32_t running = CU_PROCESS_STATE_RUNNING;
constexpr uint32_t locked = CU_PROCESS_STATE_LOCKED;
constexpr uint32_t checkpointed = CU_PROCESS_STATE_CHECKPOINTED;
constexpr uint32_t failed = CU_PROCESS_STATE_FAILED;
constexpr std::chrono::microseconds look_again{200};

constexpr int most_looks = 100;  // each after a longer time

thread_local unsigned depth = 0;

// Callable while the process is locked.
bool needs_no_lock(FunctionId id) {
    const std::string base = function_info(id).base;
    return base == "cuGetErrorName" || base == "cuGetErrorString" || base == "cuDriverGetVersion" ||
           base == "cuGetProcAddress" || base == "cuGetExportTable";
}

// Where the file of this driver begins in another process; 0: it has not loaded it.
uint64_t base_in(int pid, const std::string& file) {
    const std::string path = "/proc/" + std::to_string(pid) + "/maps";
    std::FILE* const maps = std::fopen(path.c_str(), "r");
    if (maps == nullptr) {
        return 0;
    }
    uint64_t found = 0;
    char line[4096];
    while (found == 0 && std::fgets(line, sizeof line, maps) != nullptr) {
        uint64_t begin = 0;
        uint64_t offset = 0;
        int name = 0;
        const int fields =
            std::sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*s %*s %n", &begin, &offset, &name);
        std::string text = line + name;
        if (!text.empty() && text.back() == '\n') {
            text.pop_back();
        }
        found = fields == 2 && offset == 0 && text == file ? begin : 0;
    }
    std::fclose(maps);
    return found;
}

// Another process's state.
class Target {
  public:
    explicit Target(int pid) : pid_(pid) {
        Dl_info own{};
        char file[4096];
        if (pid <= 0 || pid == getpid() || dladdr(&checkpoint_state, &own) == 0 ||
            realpath(own.dli_fname, file) == nullptr) {
            return;
        }
        const uint64_t base = base_in(pid, file);
        if (base == 0) {
            error_ = errno == EACCES || errno == EPERM ? CUDA_ERROR_NOT_PERMITTED : error_;
            return;
        }
        address_ = base + (reinterpret_cast<uint64_t>(&checkpoint_state) -
                           reinterpret_cast<uint64_t>(own.dli_fbase));
        uint32_t initialized = 0;
        if (read(offsetof(CheckpointState, initialized), initialized)) {
            error_ = initialized != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        }
    }

    // Of the last access.
    CUresult error() const { return error_; }

    uint32_t state() { return get<uint32_t>(offsetof(CheckpointState, state)); }
    void set_state(uint32_t state) { set(offsetof(CheckpointState, state), state); }
    uint32_t calls() { return get<uint32_t>(offsetof(CheckpointState, calls)); }
    bool has_failed() { return get<uint32_t>(offsetof(CheckpointState, restore_failed)) != 0; }
    void set_failed() { set(offsetof(CheckpointState, restore_failed), uint32_t{1}); }
    uint64_t used(size_t device) {
        return get<uint64_t>(offsetof(CheckpointState, used) + device * sizeof(uint64_t));
    }

  private:
    bool access(decltype(process_vm_readv)* how, size_t at, void* data, size_t bytes) {
        const iovec here{data, bytes};
        const iovec there{reinterpret_cast<void*>(address_ + at), bytes};
        if (how(pid_, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes)) {
            return true;
        }
        error_ = errno == EPERM ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_VALUE;
        return false;
    }
    template <class Value>
    bool read(size_t at, Value& value) {
        return access(&process_vm_readv, at, &value, sizeof value);
    }
    template <class Value>
    Value get(size_t at) {
        Value value{};
        read(at, value);
        return value;
    }
    template <class Value>
    void set(size_t at, Value value) {
        access(&process_vm_writev, at, &value, sizeof value);
    }

    int pid_;
    uint64_t address_ = 0;
    CUresult error_ = CUDA_ERROR_INVALID_VALUE;
};

// Half of what a stage takes: before and behind its effect.
void take_time() {
    std::this_thread::sleep_for(std::chrono::milliseconds(options().checkpoint_ms) / 2);
}

// What a process has on each device is free for others, or is taken again.
void free_for_others(Target& target) {
    for (Device& device : devices()) {
        device.used.shift_others(
            -static_cast<int64_t>(target.used(static_cast<size_t>(device.ordinal))));
    }
}

bool take_again(Target& target) {
    for (const Device& device : devices()) {
        const uint64_t bytes = target.used(static_cast<size_t>(device.ordinal));
        if (bytes > options().memory || device.used > options().memory - bytes) {
            return false;
        }
    }
    for (Device& device : devices()) {
        device.used.shift_others(
            static_cast<int64_t>(target.used(static_cast<size_t>(device.ordinal))));
    }
    return true;
}

bool is_zero(const void* data, size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) {
        if (begin[i] != 0) {
            return false;
        }
    }
    return true;
}

template <class Arguments>
bool is_reserved(const Arguments* arguments) {
    return arguments == nullptr || is_zero(arguments, sizeof *arguments);
}

// What a change of the state takes.
CUresult check(Target& target, bool arguments_are_good, uint32_t state) {
    if (target.error() != CUDA_SUCCESS) {
        return target.error();
    }
    if (!arguments_are_good) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return target.state() == state ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

}  // namespace

void begin_lockable_call(FunctionId id) {
    if (depth++ != 0) {
        return;
    }
    for (int looks = 1;; looks += looks < most_looks ? 1 : 0) {
        checkpoint_state.calls.fetch_add(1);
        if (checkpoint_state.state.load() == running || needs_no_lock(id) || is_forked_child()) {
            return;
        }
        checkpoint_state.calls.fetch_sub(1);
        std::this_thread::sleep_for(looks * look_again);
    }
}

void end_lockable_call() {
    if (--depth == 0) {
        checkpoint_state.calls.fetch_sub(1);
    }
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuCheckpointProcessGetState(int pid, CUprocessState* state) {
    Target target(pid);
    if (state == nullptr || target.error() != CUDA_SUCCESS) {
        return state == nullptr ? CUDA_ERROR_INVALID_VALUE : target.error();
    }
    *state = static_cast<CUprocessState>(target.state());
    return target.error();
}

CUresult sim_cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
    const Target target(pid);
    if (tid == nullptr || target.error() != CUDA_SUCCESS) {
        return tid == nullptr ? CUDA_ERROR_INVALID_VALUE : target.error();
    }
    *tid = pid;
    return CUDA_SUCCESS;
}

CUresult sim_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
    Target target(pid);
    if (const CUresult problem =
            check(target,
                  args == nullptr ||
                      (args->reserved0 == 0 && is_zero(args->reserved1, sizeof args->reserved1)),
                  running);
        problem != CUDA_SUCCESS) {
        return problem;
    }
    take_time();
    const auto limit = std::chrono::milliseconds(args != nullptr ? args->timeoutMs : 0);
    const auto begin = std::chrono::steady_clock::now();
    target.set_state(locked);
    while (target.error() == CUDA_SUCCESS && target.calls() != 0) {
        if (limit.count() != 0 && std::chrono::steady_clock::now() - begin >= limit) {
            target.set_state(running);
            return CUDA_ERROR_NOT_READY;
        }
        std::this_thread::sleep_for(look_again);
    }
    take_time();
    return target.error();
}

CUresult sim_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
    Target target(pid);
    if (const CUresult problem = check(target, is_reserved(args), locked);
        problem != CUDA_SUCCESS) {
        return problem;
    }
    take_time();
    target.set_state(checkpointed);
    free_for_others(target);
    take_time();
    return target.error();
}

CUresult sim_cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
    Target target(pid);
    if (const CUresult problem = check(target, is_reserved(args), checkpointed);
        problem != CUDA_SUCCESS) {
        return problem;
    }
    take_time();
    if (options().first_restore == FirstRestore::is_stuck && target.has_failed()) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (options().first_restore != FirstRestore::works && !target.has_failed()) {
        target.set_failed();
        if (options().first_restore == FirstRestore::fails) {
            target.set_state(failed);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!take_again(target)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    target.set_state(locked);
    take_time();
    return target.error();
}

CUresult sim_cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
    Target target(pid);
    if (const CUresult problem = check(target, is_reserved(args), locked);
        problem != CUDA_SUCCESS) {
        return problem;
    }
    take_time();
    target.set_state(running);
    take_time();
    return target.error();
}
