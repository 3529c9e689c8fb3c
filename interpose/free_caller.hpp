// Who frees? Plain CUDA's cudaFree also waits until the host could see finished results.
// MEMLAB_FREE_SYNC= auto keeps that promise for everyone but callers that are known not to rely on
// it.
//
// Known is PyTorch's allocator library, libc10_cuda.so: it frees a tensor's memory when the last
// reference to the tensor goes, with its kernels still running, and reads results through streams
// and events only. That holds for its uncached mode (uncached_delete calls cudaFree, from
// CUDACachingAllocator.cpp) and for its cache, which synchronizes events before it releases a
// segment.
//
// The caller is the first frame of the stack outside of memlab, the CUDA runtime and the driver.
#pragma once

namespace memlab::interpose {

/// True unless the calling thread is inside a free of a caller known not to rely on the wait. About
/// a microsecond: asked only when the device is busy. Thread-safe; takes no lock.
bool caller_relies_on_host_wait();

}  // namespace memlab::interpose
