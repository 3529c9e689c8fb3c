// The legacy IPC handle of a pooled block: 64 bytes that name the exporting process's socket and
// the block. The driver knows nothing of it and refuses it, so a process without memlab gets an
// error, never the wrong memory. Each byte is scrambled, since most of a driver's own handle is
// zero and a handle that differs from a real one in few bits may open (an H200: 346 of 512 with one
// bit changed; none of 3,255 that differed throughout).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Names a process's socket: random, so that a later process with the same id is not mistaken.
using SocketToken = std::array<unsigned char, 16>;

struct SharedHandle {
    SocketToken socket{};
    std::int32_t process = 0;
    std::uint32_t unused = 0;   ///< so that there are no gaps
    std::uint64_t address = 0;  ///< in the exporting process
    std::uint64_t block = 0;    ///< BlockInfo::id, unique in that process
    std::uint64_t bytes = 0;    ///< as requested

    bool operator==(const SharedHandle&) const = default;
};

CUipcMemHandle encode(const SharedHandle& handle);

/// False for any handle that encode() did not make.
bool decode(const CUipcMemHandle& encoded, SharedHandle* handle);

}  // namespace memlab::interpose
