/* What the simulated CUDA tells a tool that attaches to it, as the real one tells CUPTI. The
 * simulated CUPTI (tests/simcupti) is that tool. */
#ifndef MEMLAB_TESTS_SIMCUDA_TOOL_H
#define MEMLAB_TESTS_SIMCUDA_TOOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simcuda_memory_kind { simcuda_device, simcuda_managed, simcuda_pinned, simcuda_async };
enum simcuda_work_kind { simcuda_kernel_work, simcuda_copy_work, simcuda_fill_work };

struct simcuda_tool {
    /* Around a call, on the calling thread, without the driver's lock. */
    void (*driver_call)(const char* symbol, int entering);
    void (*runtime_call)(const char* name, int entering);
    /* With the driver's lock held: call nothing of CUDA's. */
    void (*memory)(enum simcuda_memory_kind kind, uint64_t address, uint64_t bytes, int device);
    void (*work)(enum simcuda_work_kind kind, const char* name, uint64_t nanoseconds, int device);
};

/* Attaches a tool, or with null none. What it points to must stay. */
void simcuda_set_tool(const struct simcuda_tool* tool);
/* From now on a free in a stream's order of memory that is not stream-ordered ends the process with
 * code 89: CUPTI 13.0 crashes in it while it records memory. */
void simcuda_break_free_async(void);
/* The simulated runtime says so through this. */
void simcuda_runtime_call(const char* name, int entering);

#ifdef __cplusplus
}
#endif
#endif
