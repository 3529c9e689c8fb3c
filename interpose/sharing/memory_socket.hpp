// The protocol between importer and exporter: a request for a block, and the descriptors of its
// memory.
//
// One request, a handle, is answered by messages with up to max_parts descriptors of mapped memory
// each, until they hold the whole block. Both ends are processes of one user, checked by the
// kernel's credentials (SO_PEERCRED), and neither waits for longer than its deadline.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>

#include "interpose/sharing/shared_handle.hpp"

namespace memlab::interpose {

inline constexpr std::uint64_t sharing_deadline_ns = 2'000'000'000;

struct Parts {
    static constexpr std::uint32_t max_parts = 8;

    std::int32_t result = 0;   ///< CUDA_SUCCESS, or why there is no memory
    std::uint32_t count = 0;   ///< descriptors in this message
    std::uint64_t offset = 0;  ///< of the block in its first part
    std::uint64_t bytes = 0;   ///< of all parts of all messages
    std::uint64_t sizes[max_parts] = {};
};

/// The address of an exporter's socket, in the abstract namespace: nothing of it lies on disk.
struct SocketAddress {
    explicit SocketAddress(const SocketToken& token);

    sockaddr_un address{};
    socklen_t size = 0;
};

/// A connected socket; closed with the object. Thread-safety: none.
class MemorySocket {
  public:
    /// Takes ownership; -1: not connected. Everything after is done by `deadline_ns`
    /// (monotonic_ns()).
    MemorySocket(int descriptor, std::uint64_t deadline_ns);
    ~MemorySocket();
    MemorySocket(const MemorySocket&) = delete;
    MemorySocket& operator=(const MemorySocket&) = delete;

    /// Connects to the socket of that name; see connected().
    static int connect_to(const SocketToken& token, std::uint64_t deadline_ns);

    /// Whether there is a peer of the same user. *process: its id as this process sees it.
    bool peer_is_own(std::int32_t* process) const;

    bool send_request(const CUipcMemHandle& handle);
    bool receive_request(CUipcMemHandle* handle);

    /// Sends `parts` with its descriptors, which stay the caller's.
    bool send_parts(const Parts& parts, const int* descriptors);
    /// Receives as many descriptors as parts->count says; they are the caller's.
    bool receive_parts(Parts* parts, int (&descriptors)[Parts::max_parts]);

  private:
    bool wait_for(short events) const;

    const int descriptor_;
    const std::uint64_t deadline_ns_;
};

}  // namespace memlab::interpose
