// What memlab does differently for a caller that it knows: PyTorch's allocator library,
// libc10_cuda.so.
//
// A free must wait for the GPU, since plain CUDA's cudaFree waits until finished results are
// visible to the host. MEMLAB_FREE_SYNC=auto keeps that guarantee except for callers known not to
// rely on it. PyTorch frees a tensor's memory when the last reference is dropped, with kernels
// still running, and reads results through streams and events only. That holds for its uncached
// mode (uncached_delete calls cudaFree, from CUDACachingAllocator.cpp) and for its cache, which
// synchronizes events before it releases a segment.
//
// An allocation comes from the pool, except where the caller keeps a cache of its own: a cache on a
// cache would hold back what empty_cache() releases, and PyTorch exports its segments to other
// processes, for which they must be allocations of the driver's. So must those of any other library
// or program that refers to cudaIpcGetMemHandle: what it exports another process may open without
// memlab.
//
// The caller is the first stack frame outside memlab, the CUDA runtime and the driver. The frames
// between a call site in the runtime and the runtime's caller have a fixed size, so the stack is
// walked once per call site, and the distance cached.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// Records where the calling thread's allocation or free entered memlab: `frame` is the exported
/// function's canonical frame address (__builtin_dwarf_cfa()), just above the return address into
/// its caller. They nest: a signal handler may allocate in the middle of another call.
class CallFrame {
  public:
    explicit CallFrame(void* frame);
    ~CallFrame();
    CallFrame(const CallFrame&) = delete;
    CallFrame& operator=(const CallFrame&) = delete;

  private:
    const std::uintptr_t outer_;
};

/// True when the cached distance finds such a caller for the free that the calling thread is in;
/// false means unknown. Thread-safe; a few reads.
bool caller_is_known_asynchronous();

/// True unless the calling thread is inside a free of a caller known not to rely on the wait.
/// Thread-safe; lock-free.
bool caller_relies_on_host_wait();

/// Who allocates, as far as it matters for whether memory is pooled.
enum class Allocator : std::uint8_t {
    other,
    pytorch,    ///< PyTorch's allocator library
    exporting,  ///< a program or library that refers to cudaIpcGetMemHandle or cuIpcGetMemHandle
};

/// Of the allocation that the calling thread is inside. Thread-safe; lock-free.
Allocator calling_allocator();

/// Whether PyTorch's allocator library tells hooks/pytorch.cpp of the blocks that it cuts from its
/// allocations. Thread-safe; takes the lock of the loader's list the first time, and after a
/// library was unloaded.
bool pytorch_tells_of_blocks();

}  // namespace memlab::interpose
