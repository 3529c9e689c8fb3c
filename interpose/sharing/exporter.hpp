// Shares pooled blocks of mapped memory with other processes of this user that run under memlab.
//
// cuIpcGetMemHandle returns a handle that names this process's socket and the block. A thread,
// started with the first such handle, answers importers with the file descriptors of the block's
// chunks. Guarantee: never other memory. If the block was freed since, the answer is an error.
#pragma once

#include <atomic>
#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/sharing/memory_socket.hpp"
#include "threads/mutex.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::interpose {

/// Whether share() can give a handle of this live block.
bool is_shareable(Memory& memory, const PooledBlock& pooled);

/// Thread-safety: all functions, from any thread.
class Exporter {
  public:
    /// The handle of a live, shareable block. CUDA_ERROR_OPERATING_SYSTEM where no socket or thread
    /// can be made, or in a forked child.
    CUresult share(Memory& memory, const PooledBlock& pooled, CUipcMemHandle* handle);

    /// Whether this process made the handle.
    bool made(const SharedHandle& handle) const;

  private:
    bool start(Memory& memory) MEMLAB_REQUIRES(mutex_);
    bool listen_on_new_socket() MEMLAB_REQUIRES(mutex_);
    static void* run(void* self);
    void serve();
    void answer(int client);
    CUresult send_block(MemorySocket& client, const CUipcMemHandle& handle);

    threads::Mutex mutex_;  ///< held to start; what follows is constant from process_'s store on
    Memory* memory_ = nullptr;
    SocketToken token_{};
    std::atomic<std::int32_t> process_{0};  ///< whose thread serves; 0: none yet
    trace::OwnDescriptor socket_;           ///< the thread's, once it runs
};

Exporter& exporter();

}  // namespace memlab::interpose
