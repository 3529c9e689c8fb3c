// Memory of other processes, opened by handles that their memlab made (exporter.hpp).
//
// The chunks that hold the block are mapped contiguously, and the program gets the block's address
// in them. As with the driver's handles, a handle that is open already gives the same address, and
// must be closed as often as it was opened.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/sharing/memory_socket.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. None may be called with a lock of memlab's.
class Importer {
  public:
    struct Import {
        SharedHandle handle;
        CUdevice device = 0;      ///< of the context in which it was opened
        CUdeviceptr address = 0;  ///< of the block
        CUdeviceptr begin = 0;    ///< of the chunks
        std::uint64_t bytes = 0;  ///< of the chunks
        unsigned opens = 0;
    };

    /// Maps the memory for the current context. CUDA_ERROR_INVALID_HANDLE: freed since, or not that
    /// process's; CUDA_ERROR_MAP_FAILED: the process is gone, stopped, another user's or cannot be
    /// reached, after two seconds at most; or any error of the driver's.
    CUresult open(const SharedHandle& handle, Import* import);

    /// The import that holds the address, if any. No lock while nothing is imported.
    std::optional<Import> find(CUdeviceptr address) const;

    /// Closes the import that was opened at this address once: waits for the current context's work
    /// and unmaps it if that was the last time, which *last tells.
    CUresult close(CUdeviceptr address, bool* last);

  private:
    CUresult open_new(const SharedHandle& handle, Import* import);

    threads::Mutex opening_;        ///< one thread opens or closes; taken first
    mutable threads::Mutex mutex_;  ///< of the table
    std::vector<Import> imports_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<std::size_t> count_{0};
};

Importer& importer();

}  // namespace memlab::interpose
