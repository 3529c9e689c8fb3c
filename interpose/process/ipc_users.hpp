// Detects libraries that share device memory with other processes on a program's behalf (UCX, MPI,
// OpenSHMEM). They export the program's allocations by handles that name the driver's allocation,
// not a block within it. Once one is loaded, new memory must come from the driver for those handles
// to be exact.
//
// The search runs where a new library usually shows: when memlab starts, when a driver function is
// resolved, and after a pool has grown; never under a memlab lock (it takes the loader's). It costs
// 0.1 us while nothing new is loaded. Memory pooled before stays pooled: its export is refused with
// a message (hooks/ipc.cpp), never wrong.
#pragma once

#include <array>
#include <atomic>

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class IpcUsers {
  public:
    /// The library's file name, truncated.
    using Name = std::array<char, 64>;

    /// Searches the loaded libraries if any was loaded since the last call. True, and *name set,
    /// when one of those is found.
    bool look(Name* name);

  private:
    std::atomic<unsigned long long> seen_{0};  ///< the loader's count of loads at the last search
};

/// Whether a library with this file name ("libucp.so.0") is one of those.
bool is_ipc_user(const char* file_name);

}  // namespace memlab::interpose
