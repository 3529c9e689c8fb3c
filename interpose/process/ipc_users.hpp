// Libraries that share device memory with other processes on a program's behalf (UCX, MPI,
// OpenSHMEM): they export the program's own allocations, by handles that name the driver's
// allocation and not a block within it. Once one is loaded, memory must come from the driver for
// those handles to be exact.
//
// Looked for where a new library usually shows, never under a lock of ours (the loader's own is
// taken): when memlab starts, when somebody resolves a driver function, and after a pool has grown.
// Costs a tenth of a microsecond while nothing new is loaded. What was pooled before stays pooled:
// its export is refused with a message (hooks/ipc.cpp), never the wrong memory.
#pragma once

#include <array>
#include <atomic>

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class IpcUsers {
  public:
    /// The file name of such a library, cut to fit.
    using Name = std::array<char, 64>;

    /// Looks through what is loaded, if anything was loaded since the last look. True, and *name,
    /// when one of those libraries is there.
    bool look(Name* name);

  private:
    std::atomic<unsigned long long> seen_{0};  ///< the loader's count of objects at the last look
};

/// Whether a library of this file name is one of those. "libucp.so.0".
bool is_ipc_user(const char* file_name);

}  // namespace memlab::interpose
