// A captured call stack: return addresses and canonical frame addresses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::profiler::unwind {

/// A call stack of at most `capacity` frames.
template <std::size_t capacity>
struct StackBuffer {
    static constexpr std::size_t max_depth = capacity;

    std::size_t depth = 0;
    bool truncated = false;               ///< deeper than the limit of the capture
    bool ends_early = false;              ///< the last frame has a caller that cannot be found
    std::uintptr_t addresses[max_depth];  ///< return addresses, leaf first; only [0, depth) is set

    /// The canonical frame address of each frame, where it ends: an object on the stack belongs to
    /// the first frame that ends above it. UINTPTR_MAX: unknown, as may be the outermost one's.
    std::uintptr_t ends[max_depth];
};

using CapturedStack = StackBuffer<256>;
/// 1 KiB, small enough for the stacks of signal handlers and small threads.
using ShortStack = StackBuffer<64>;

/// A captured stack of any capacity.
struct StackView {
    template <std::size_t capacity>
    StackView(
        const StackBuffer<capacity>& stack)  // NOLINT(google-explicit-constructor): a view of it
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

}  // namespace memlab::profiler::unwind
