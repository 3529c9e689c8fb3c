// What the environment tells simcuda: devices, memory, faults to inject, statistics.
//
// Read once, at the first call into the driver. A value that cannot be understood is one line on
// stderr and exit code 2: a test with a mistyped fault must not pass by injecting nothing.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tests/simcuda/driver_abi.hpp"

namespace memlab::simcuda {

struct InjectedFault {
    std::string function;  // a symbol, or a base name standing for all its versions
    uint64_t nth;          // 1 is the first call
    CUresult error;
    uint64_t seen = 0;
};

// What the driver takes device memory for on its own.
enum class Taken { module, kernel, launch, graph, upload, stream, event, limit };
constexpr const char* taken_names[] = {"module", "kernel", "launch", "graph",
                                       "upload", "stream", "event",  "limit"};

// What the first restore of a process is like: as any other, or it finds too little memory, since
// somebody else was faster, and can be tried again; or the driver says CUDA_ERROR_OPERATING_SYSTEM
// from then on (as 580.95); or the process has failed.
enum class FirstRestore { works, can_be_repeated, is_stuck, fails };

struct Options {
    int devices = 1;               // SIMCUDA_DEVICES
    uint64_t memory = 8ULL << 30;  // SIMCUDA_MEMORY, bytes of each device
    uint64_t context_memory = 0;   // SIMCUDA_CONTEXT_MEMORY, bytes each context takes
    // SIMCUDA_TAKES=module:64MiB[,...]: bytes that each takes; limit: at the first cuCtxSetLimit. A
    // kernel's are taken when its function is asked for, or at its first launch; launch's at the
    // first launch of any function of a module; upload's at the first cuGraphUpload or launch of an
    // executable graph.
    uint64_t takes[std::size(taken_names)] = {};
    // SIMCUDA_WITHHELD, bytes that are said to be free and never given: a page on an H100.
    uint64_t withheld = 0;
    // SIMCUDA_QUEUE, how much work a stream takes before a call that submits more waits; 0: any.
    uint64_t queue = 0;
    uint64_t oom_at = 0;                // SIMCUDA_OOM_AT, 0: never
    uint64_t oom_above = UINT64_MAX;    // SIMCUDA_OOM_ABOVE, bytes of one request
    std::vector<InjectedFault> faults;  // SIMCUDA_FAIL=function:nth:error[,...]
    int driver_version = CUDA_VERSION;  // SIMCUDA_DRIVER_VERSION
    std::string stats_path;             // SIMCUDA_STATS, %p is the process id
    std::string shared_path;            // SIMCUDA_SHARED, see used_bytes.hpp
    // SIMCUDA_CONCURRENT_MANAGED=0: the host cannot access managed memory while work runs.
    bool concurrent_managed = true;
    // SIMCUDA_IPC_ENABLES_PEERS=1: opening memory on another device enables access to that device,
    // as is documented; H200s with driver 580 do not.
    bool ipc_enables_peers = false;
    // SIMCUDA_CHECKPOINT_MS, what each of cuCheckpointProcess* takes.
    uint64_t checkpoint_ms = 0;
    FirstRestore first_restore = FirstRestore::works;  // SIMCUDA_FIRST_RESTORE, 0 to 3
};

Options& options();

// An error of <cuda.h> by name or number; false when there is none.
bool parse_error(const std::string& text, CUresult& error);

}  // namespace memlab::simcuda
