// A call stack as the unwinder leaves it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::profiler {

/// A call stack with room for so many frames.
template <std::size_t room>
struct StackRoom {
    static constexpr std::size_t max_depth = room;

    std::size_t depth = 0;
    bool truncated = false;               ///< deeper than asked for
    bool ends_early = false;              ///< nothing tells the caller of the last frame
    std::uintptr_t addresses[max_depth];  ///< return addresses, leaf first; only [0, depth) is set

    /// Where each frame ends on the stack (its canonical frame address): an object on the stack
    /// lies in the first frame that ends above it. The outermost frame's end may be unknown: all
    /// ones.
    std::uintptr_t ends[max_depth];
};

using CapturedStack = StackRoom<256>;
/// Small enough for a small stack: 1 KiB.
using ShortStack = StackRoom<64>;

/// A captured stack, whatever the room that it is in.
struct StackView {
    template <std::size_t room>
    StackView(const StackRoom<room>& stack)  // NOLINT(google-explicit-constructor): a view of it
        : depth(stack.depth),
          truncated(stack.truncated),
          ends_early(stack.ends_early),
          addresses(stack.addresses),
          ends(stack.ends) {}

    std::size_t depth;
    bool truncated;
    bool ends_early;
    const std::uintptr_t* addresses;
    const std::uintptr_t* ends;
};

}  // namespace memlab::profiler
