// The driver's checkpoint of other processes (cuCheckpointProcess*), as far as sizes and states go:
// while a process is locked its calls block; while it is checkpointed its memory is free for the
// other processes of SIMCUDA_SHARED. The contents stay where they are: nobody can reach them.
//
// Who checkpoints finds the other process's state by its address in the driver's file, which both
// have loaded, and reads and writes it as a debugger does: without the right to that the answer is
// CUDA_ERROR_NOT_PERMITTED. What was checkpointed does not depend on who did it.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/simcuda/call.hpp"

namespace memlab::simcuda {

// Of this process; others read and write it.
struct CheckpointState {
    std::atomic<uint32_t> state;  // CUprocessState
    std::atomic<uint32_t> calls;  // in the driver, those that wait for the lock's end left out
    uint32_t initialized;
    uint32_t restore_failed;
    std::atomic<uint64_t> used[64];  // of each device
};
extern CheckpointState checkpoint_state;

// Around a call of the program's that is not one within another: blocks while it is locked.
void begin_lockable_call(FunctionId id);
void end_lockable_call();

}  // namespace memlab::simcuda
