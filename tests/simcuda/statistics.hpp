// Counts of what reached the driver: how tests prove that a pool answered by itself.
#pragma once

#include <cstdint>

#include "tests/simcuda/call.hpp"

namespace memlab::simcuda {

void count_call(FunctionId id);
uint64_t calls(FunctionId id);

// Device memory that the program holds, by requested size.
void count_live(int64_t bytes);

// Writes SIMCUDA_STATS, if set: "calls <symbol> <n>" for each function called, then "live_bytes",
// "peak_bytes" and "races". Also done when the library is unloaded.
void write_statistics();

}  // namespace memlab::simcuda
