/* The control interface of the simulated CUDA driver: exported by its libcuda.so.1 beside the
 * driver's own functions. A test resolves these with dlsym, or links with the library.
 *
 * Nothing here counts as a driver call. All functions are thread-safe. A `stream` is a CUstream of
 * the program; null is the legacy default stream of the calling thread's current context. Unless a
 * test says otherwise nothing takes time and every piece of work completes as it is submitted.
 * A use of an event after its context's end, undefined in CUDA, ends the process with code 88.
 */
#ifndef MEMLAB_TESTS_SIMCUDA_H
#define MEMLAB_TESTS_SIMCUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- time. Functions that take a stream return 0, or -1 for a stream that does not exist. */

/* Virtual nanoseconds since the start. */
uint64_t simcuda_now(void);
/* Moves virtual time on, completing work in order. */
void simcuda_advance(uint64_t nanoseconds);
/* From now on each kernel and copy on this stream takes so long. */
int simcuda_set_work_time(void* stream, uint64_t nanoseconds);
/* Keeps the stream's work from completing ("the kernel is still running") until it is opened. A
 * host thread that waits for it waits until another thread opens it; after a minute the process
 * ends with code 87. */
int simcuda_close_stream(void* stream);
int simcuda_open_stream(void* stream);
/* 1 if all work of the stream is complete, 0 if not. No ordering follows from asking. */
int simcuda_stream_idle(void* stream);

/* ---- races: see race.hpp */

typedef struct simcuda_access {
    uint64_t address;
    uint64_t bytes;
    int write;      /* 0: reads */
    uint64_t owner; /* 0: the owner of the address (simcuda_owner, or the driver's allocation) */
} simcuda_access;

/* A kernel that takes so long and reads and writes these ranges; in a capture, a kernel node. It
 * reaches the driver as a program's does: through the process's cuLaunchKernel. */
int simcuda_kernel(void* stream, uint64_t nanoseconds, const simcuda_access* accesses,
                   size_t count);
/* The same, launched so that it may begin before the kernel before it in its stream has ended
 * (programmatic stream serialization, which nothing in it waits for). */
int simcuda_early_kernel(void* stream, uint64_t nanoseconds, const simcuda_access* accesses,
                         size_t count);
/* A kernel that takes no time and prints the text, which stays in the context until the host waits
 * for something in it, or frees memory, as an H100's driver has it: a query does not show it. Then
 * it is written to standard output. */
int simcuda_printing_kernel(void* stream, const char* text);
/* The same as simcuda_kernel for one range and no time. */
int simcuda_declare_access(void* stream, uint64_t address, uint64_t bytes, int write);
/* From now on the range belongs to this owner (any number but 0; 0 takes it back). Freed driver
 * memory loses its owners. */
void simcuda_owner(uint64_t address, uint64_t bytes, uint64_t owner);
/* Races found so far. If any are left at exit, the process ends with code 86. */
uint64_t simcuda_races(void);
void simcuda_forget_races(void);

/* ---- what reached the driver */

/* Calls of a symbol, or of all the versions and stream flavors of a base name ("cuMemAlloc"). */
uint64_t simcuda_calls(const char* function);
/* Bytes of physical memory of device 0 in use, contexts included. */
uint64_t simcuda_used(void);
/* The same of any device, by all processes of SIMCUDA_SHARED; *total: what it has. */
uint64_t simcuda_used_by_all(int device, uint64_t* total);
/* Writes SIMCUDA_STATS now. */
void simcuda_write_statistics(void);

/* A driver function of a later CUDA than any header names. Does nothing. */
int cuSimcudaUnlisted(void);
/* The name of a private table that cuGetExportTable gives: 16 bytes. */
#define SIMCUDA_PRIVATE_TABLE "simcuda-private!"

/* ---- faults, beside those of the environment */

/* The nth next call of the function fails with this CUresult; the 0th: none does any more. 0, or -1
 * for an unknown function. */
int simcuda_fail(const char* function, uint64_t nth, int error);

#ifdef __cplusplus
}
#endif
#endif
