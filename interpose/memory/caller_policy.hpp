// Who frees? Plain CUDA's cudaFree also waits until the host could see finished results.
// MEMLAB_FREE_SYNC=auto keeps that promise for everyone but callers that are known not to rely on
// it.
//
// Known is PyTorch's allocator library, libc10_cuda.so: it frees a tensor's memory when the last
// reference to the tensor goes, with its kernels still running, and reads results through streams
// and events only. That holds for its uncached mode (uncached_delete calls cudaFree, from
// CUDACachingAllocator.cpp) and for its cache, which synchronizes events before it releases a
// segment.
//
// The caller is the first frame of the stack outside of memlab, the CUDA runtime and the driver. To
// unwind that far costs a microsecond or two, on every free beside running work; but between one
// place in the runtime that calls the driver and the runtime's own caller lie frames of fixed size.
// So where the caller's return address was found once, it is looked for again.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// Notes where the calling thread's free entered memlab: `frame` is the exported function's
/// canonical frame address (__builtin_dwarf_cfa()), just above the return address into its caller.
class FreeFrame {
  public:
    explicit FreeFrame(void* frame);
    ~FreeFrame();
    FreeFrame(const FreeFrame&) = delete;
    FreeFrame& operator=(const FreeFrame&) = delete;
};

/// True when the calling thread is inside a free of such a caller, found at the place where it was
/// found before: false says nothing. Thread-safe; a few reads.
bool caller_is_known_to_go_on();

/// True unless the calling thread is inside a free of a caller known not to rely on the wait.
/// Thread-safe; takes no lock.
bool caller_relies_on_host_wait();

}  // namespace memlab::interpose
