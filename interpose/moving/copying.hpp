// Copies between chunks of a context and where their contents are kept, by several threads: each
// has a stage of pinned memory and a stream of its own, and takes the next piece. The link is busy
// all the time, while host pages are touched and filled by all threads side by side.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/moving/kept_memory.hpp"

namespace memlab::interpose {

enum class Direction : std::uint8_t { out, in };

struct CopyTask {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    HeldContents* contents = nullptr;
    std::uint64_t at = 0;  ///< where in the contents
};

/// Adds the pieces of a chunk in which it is copied. May throw std::bad_alloc.
void add_pieces(std::uint64_t address, std::uint64_t bytes, HeldContents& contents,
                std::vector<CopyTask>& pieces);

/// Copies all of it; returns when that is done. Empty, or why it was not; then anything may have
/// been copied. `stop` ends it. May throw std::bad_alloc, before anything happens.
std::string copy_contents(CUcontext context, const std::vector<CopyTask>& pieces,
                          Direction direction, const std::atomic<bool>& stop);

}  // namespace memlab::interpose
