/* memlab's optional C API: annotations and queries, so that reports use the program's own terms
 * (docs/scopes.md). Header only: include it, link nothing. Usable from C99 and C++.
 *
 * Under memlab the calls reach the preloaded libmemlab.so; without it the symbols are weak and
 * undefined, every call is a no-op, and instrumented programs run everywhere. The symbols are bound
 * when the program or library that makes the calls is loaded: memlab must be loaded by then
 * (LD_PRELOAD, memlab-run; not dlopen later). Fully static programs (-static) are not supported;
 * the static CUDA runtime is.
 *
 * Thread-safety: every function, from any thread. None may be called from a signal handler. Names
 * are copied, at most 255 bytes of UTF-8 of them; null means "". A program needs none of this to be
 * recorded. */
#ifndef MEMLAB_MEMLAB_H
#define MEMLAB_MEMLAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Figures of one device, in bytes unless they are counts. */
struct memlab_device_stats {
    size_t size;                   /* bytes of this structure that are filled in; 0: no data */
    uint64_t requested_bytes;      /* requested by the program and not freed */
    uint64_t allocated_bytes;      /* the blocks that hold it */
    uint64_t active_bytes;         /* allocated, and freed blocks that are not yet safe to reuse */
    uint64_t reserved_bytes;       /* taken from the driver */
    uint64_t requested_peak_bytes; /* maxima so far, each separately */
    uint64_t allocated_peak_bytes;
    uint64_t active_peak_bytes;
    uint64_t reserved_peak_bytes;
    uint64_t allocation_count; /* allocations so far */
    uint64_t live_count;       /* of these, not yet freed */
    uint64_t oom_count;        /* allocations that failed for lack of memory */
};

/* CPython's Py_AddPendingCall, and what it takes. */
typedef int (*memlab_pending_call)(void*);
typedef int (*memlab_add_pending_call)(memlab_pending_call call, void* argument);

/* The symbols that libmemlab.so exports; call the functions below instead. */
__attribute__((weak)) void memlab_api_scope_begin(const char* name);
__attribute__((weak)) void memlab_api_scope_end(void);
__attribute__((weak)) void memlab_api_mark(const char* name);
__attribute__((weak)) int memlab_api_label(const void* pointer, const char* name);
__attribute__((weak)) int memlab_api_label_detail(const void* pointer, const char* name,
                                                  const char* detail);
__attribute__((weak)) int memlab_api_suballoc(const char* allocator, const void* pointer,
                                              size_t bytes);
__attribute__((weak)) int memlab_api_subfree(const char* allocator, const void* pointer);
__attribute__((weak)) int memlab_api_nn_module(const void* nn_module, const char* name,
                                               const char* class_name);
__attribute__((weak)) int memlab_api_nn_module_end(const void* nn_module);
__attribute__((weak)) size_t memlab_api_nn_modules_unnamed(const void** nn_modules, size_t count);
__attribute__((weak)) void memlab_api_nn_modules_tell(memlab_add_pending_call add,
                                                      memlab_pending_call call);
__attribute__((weak)) uint64_t memlab_api_empty_cache(void);
__attribute__((weak)) int memlab_api_yield(char* problem, size_t size);
__attribute__((weak)) int memlab_api_restore(void);
__attribute__((weak)) int memlab_api_snapshot(const char* name);
__attribute__((weak)) int memlab_api_stats(int device, void* stats, size_t size);
__attribute__((weak)) uint64_t memlab_api_interval_begin(void);
__attribute__((weak)) uint64_t memlab_api_interval_begin_of(int gpu, const char* kind);
__attribute__((weak)) size_t memlab_api_interval_end(uint64_t interval, size_t max_sites,
                                                     char* json, size_t size);
__attribute__((weak)) size_t memlab_api_cache_stats(int gpu, uint64_t* values, size_t count);
__attribute__((weak)) size_t memlab_api_cache_holders(int gpu, const uint64_t* known, size_t count,
                                                      size_t max_sites, char* json, size_t size);
__attribute__((weak)) uint64_t memlab_api_moment(void);
__attribute__((weak)) size_t memlab_api_made_between(const uint64_t* moments, size_t count,
                                                     size_t max_sites, char* json, size_t size);
__attribute__((weak)) size_t memlab_api_recording(char* path, size_t size);

/* Begins a scope of the calling thread: what it allocates until the scope ends belongs to it, and
 * to the scopes around it. Costs what recording an allocation costs, well below a microsecond. */
static inline void memlab_scope_begin(const char* name) {
    if (memlab_api_scope_begin) {
        memlab_api_scope_begin(name);
    }
}

/* Ends the innermost scope that this thread began with memlab_scope_begin. Without one the
 * call is only counted in the report. */
static inline void memlab_scope_end(void) {
    if (memlab_api_scope_end) {
        memlab_api_scope_end();
    }
}

/* Puts a named mark on the timeline; the report shows allocated and reserved bytes at each mark. A
 * name that comes again delimits steps. Costs what recording an allocation costs. */
static inline void memlab_mark(const char* name) {
    if (memlab_api_mark) {
        memlab_api_mark(name);
    }
}

/* Gives the live allocation that holds `pointer` a name; a later one replaces it. A tensor in a
 * framework's cache, or a block of memlab_suballoc, is named by its first byte only. Returns 0, or
 * -1 when memlab knows no such allocation. */
static inline int memlab_label(const void* pointer, const char* name) {
    return memlab_api_label ? memlab_api_label(pointer, name) : -1;
}

/* The same, and what the allocation holds, "float32[512, 512]", which is shown beside its name; at
 * most 255 bytes, and null where it is not known. A memlab that does not know it takes the name. */
static inline int memlab_label_detail(const void* pointer, const char* name, const char* detail) {
    return memlab_api_label_detail ? memlab_api_label_detail(pointer, name, detail)
                                   : memlab_label(pointer, name);
}

/* For an allocator of your own, which cuts device memory into blocks: it handed out `bytes` at
 * `pointer`. The report shows it as a level of its own, "ALLOCATOR on GPU 0": its blocks with their
 * call stacks, and as reserved the memory that holds them, an allocation of CUDA's or a block of
 * another such allocator, from the first block in it until it is freed. Call after the block is
 * chosen and before another thread may free it, best under the allocator's own lock. At most 14
 * allocators have names; "PyTorch" is taken. Returns 0, or -1 when nothing was recorded: without
 * memlab or a recording, for 0 bytes, where `pointer` is no device memory. Costs up to
 * twice what recording an allocation costs, and more for the first block in new memory. */
static inline int memlab_suballoc(const char* allocator, const void* pointer, size_t bytes) {
    return memlab_api_suballoc ? memlab_api_suballoc(allocator, pointer, bytes) : -1;
}

/* The block at `pointer` came back to that allocator. Call before it may be handed out again.
 * Blocks in memory that is freed end with it and need no call. Returns 0, or -1 when the allocator
 * has no block in that memory. */
static inline int memlab_subfree(const char* allocator, const void* pointer) {
    return memlab_api_subfree ? memlab_api_subfree(allocator, pointer) : -1;
}

/* For Python code: the PyTorch nn.Module at this address (its id()) has the qualified name `name`,
 * "layers.0.linear", empty for the outermost one, and is of the class `class_name`. What its calls
 * allocate is shown under that name; a later one replaces it. Call memlab_nn_module_end() before
 * the object's memory may be another's. Both return 0, or -1 without memlab or a recording, which
 * begins with the first use of CUDA. */
static inline int memlab_nn_module(const void* nn_module, const char* name,
                                   const char* class_name) {
    return memlab_api_nn_module ? memlab_api_nn_module(nn_module, name, class_name) : -1;
}
static inline int memlab_nn_module_end(const void* nn_module) {
    return memlab_api_nn_module_end ? memlab_api_nn_module_end(nn_module) : -1;
}

/* For the Python package: whose names are wanted. Fills in the addresses of at most `count`
 * nn.Modules that were called inside of no other and have no name, each told once, in the order of
 * their first calls; returns how many. An address is only an address: its object may be gone. */
static inline size_t memlab_nn_modules_unnamed(const void** nn_modules, size_t count) {
    return memlab_api_nn_modules_unnamed ? memlab_api_nn_modules_unnamed(nn_modules, count) : 0;
}

/* They are kept for that call from here on, before a recording begins, too: add(call, NULL) is
 * called for each of them, in the thread that calls the nn.Module, from inside of a function of
 * CUDA's. Null for both: no longer. */
static inline void memlab_nn_modules_tell(memlab_add_pending_call add, memlab_pending_call call) {
    if (memlab_api_nn_modules_tell) {
        memlab_api_nn_modules_tell(add, call);
    }
}

/* Releases every unused cached segment of every device to the driver, after waiting for the device
 * work that still uses freed memory. Returns the bytes released; 0 without memlab. */
static inline uint64_t memlab_empty_cache(void) {
    return memlab_api_empty_cache ? memlab_api_empty_cache() : 0;
}

/* Steps aside (docs/step-aside.md): moves the memory of memlab's pool from the GPUs to the host, at
 * unchanged addresses. The next work or allocation of any thread brings it back and waits for that;
 * so does memlab_restore(). Call it when nothing is submitted any more: waits for the GPUs' work,
 * two seconds at most. Returns 0; -1 when nothing was moved, without memlab, or without
 * MEMLAB_YIELD=on; then stderr says why. */
static inline int memlab_yield(void) {
    return memlab_api_yield ? memlab_api_yield(0, 0) : -1;
}

/* Brings the memory back and waits for that. Returns 0; -1 when none was away. */
static inline int memlab_restore(void) {
    return memlab_api_restore ? memlab_api_restore() : -1;
}

/* Writes a report of everything recorded so far, while the program goes on. A name with a '/' is
 * the path; any other name is put into the name of this process's report: "warm" makes
 * memlab.app.42.warm.json of memlab.app.42.json. A file of that name is replaced. Other threads'
 * allocations wait while the report is put together in memory (milliseconds; up to some hundred
 * with 100,000 call sites), not while it is written. Returns 0, or -1 when nothing was written. */
static inline int memlab_snapshot(const char* name) {
    return memlab_api_snapshot ? memlab_api_snapshot(name) : -1;
}

/* The figures of `device` (the CUDA ordinal; -1: that of the current context). Returns 0, or -1,
 * and all figures 0, without memlab, without recording, or before the device was used. Costs a
 * lock. */
static inline int memlab_stats(int device, struct memlab_device_stats* stats) {
    static const struct memlab_device_stats nothing = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    *stats = nothing;
    return memlab_api_stats ? memlab_api_stats(device, stats, sizeof(*stats)) : -1;
}

/* Begins an interval whose figures memlab_interval_end() has. Returns its number, or 0: without
 * memlab or a recording, or with 64 intervals at a time. While an interval is open, recording an
 * allocation or a free costs some tens of nanoseconds more, in a thread of memlab's. This call
 * visits each live allocation; other threads' allocations wait as for memlab_snapshot(). */
static inline uint64_t memlab_interval_begin(void) {
    return memlab_api_interval_begin ? memlab_api_interval_begin() : 0;
}

/* The same of one GPU's memory alone (-1: of all GPUs), or of another kind of memory than the
 * device's: "managed" or "pinned"; null: device memory. Any other kind is as if there were too many
 * intervals. */
static inline uint64_t memlab_interval_begin_of(int gpu, const char* kind) {
    return memlab_api_interval_begin_of ? memlab_api_interval_begin_of(gpu, kind) : 0;
}

/* Ends the interval and says what it needed, as JSON (docs/report-format.md): the highest level of
 * device memory, all devices together, as of a scope; and the `max_sites` call sites that held most
 * of it at that moment, with their Python frames. Returns the length of the JSON, or 0: without
 * such an interval, as in a forked child. It is in `json`, with a null byte, if that is less than
 * `size`; else nothing is written, and a second call with more room gets it: the interval ended
 * with the first. Other threads' allocations wait as for memlab_snapshot(). */
static inline size_t memlab_interval_end(uint64_t interval, size_t max_sites, char* json,
                                         size_t size) {
    return memlab_api_interval_end ? memlab_api_interval_end(interval, max_sites, json, size) : 0;
}

/* The figures of PyTorch's cache on a GPU: the values of the keys of torch.cuda.memory_stats() in
 * the alphabetical order of these, without max_split_size; 121 of them, as the report's
 * memory_stats. Those that end in ".peak" are of the time since the previous call for that GPU in
 * the process. What PyTorch does not tell is as in the report: requested bytes are those of blocks.
 * Returns how many values there are, the first `count` of which it wrote, or 0: without memlab or a
 * recording, or before that cache handed out anything. Waits as memlab_snapshot(), for
 * microseconds. */
static inline size_t memlab_cache_stats(int gpu, uint64_t* values, size_t count) {
    return memlab_api_cache_stats ? memlab_api_cache_stats(gpu, values, count) : 0;
}

/* What PyTorch's cache on a GPU has handed out at this moment, less the blocks at the `count`
 * addresses `known`: the JSON of memlab_interval_end() of an interval in which nothing happens, of
 * these blocks alone. Returns as that does, and 0 without such a cache. Each call makes a JSON of
 * its own moment. Other threads' allocations wait as for memlab_snapshot(). */
static inline size_t memlab_cache_holders(int gpu, const uint64_t* known, size_t count,
                                          size_t max_sites, char* json, size_t size) {
    return memlab_api_cache_holders
               ? memlab_api_cache_holders(gpu, known, count, max_sites, json, size)
               : 0;
}

/* How many allocations this process has made: a moment, for memlab_made_between(). 0: without
 * memlab or a recording, or before the first use of CUDA. Waits as memlab_snapshot(), for
 * microseconds. */
static inline uint64_t memlab_moment(void) {
    return memlab_api_moment ? memlab_api_moment() : 0;
}

/* The device memory that was allocated between the first and the second of `count` moments, between
 * the third and the fourth, and so on, and is still allocated. They are in order. The JSON is that
 * of memlab_interval_end() of an interval in which nothing happens, of this memory alone. Returns
 * as that does. Visits each live allocation; each call makes a JSON of its own moment. Other
 * threads' allocations wait as for memlab_snapshot(). */
static inline size_t memlab_made_between(const uint64_t* moments, size_t count, size_t max_sites,
                                         char* json, size_t size) {
    return memlab_api_made_between ? memlab_api_made_between(moments, count, max_sites, json, size)
                                   : 0;
}

/* The path of the report that the end of the process writes; the event log, which is written
 * meanwhile, is beside it (.memlog in place of .json). Returns its length, or 0: without memlab,
 * before the first use of CUDA, or where none is written. As memlab_interval_end(), it is in `path`
 * if there is room. */
static inline size_t memlab_recording(char* path, size_t size) {
    return memlab_api_recording ? memlab_api_recording(path, size) : 0;
}

#ifdef __cplusplus
}

namespace memlab {

/* A scope of the calling thread from here to the end of the block. */
class Scope {
  public:
    explicit Scope(const char* name) { memlab_scope_begin(name); }
    ~Scope() { memlab_scope_end(); }

  private:
    Scope(const Scope&);
    Scope& operator=(const Scope&);
};

} /* namespace memlab */
#endif

#endif
