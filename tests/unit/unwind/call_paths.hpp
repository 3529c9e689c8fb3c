// Random call paths through every sort of frame, for comparing unwinders at their leaves.
#pragma once

#include <cstdint>

namespace call_paths {

/// Chooses what is called next; at its end calls `at_leaf`.
struct Path {
    std::uint64_t random;
    int left;  ///< calls still to make
    void (*at_leaf)();

    std::uint64_t draw() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random;
    }
};

/// Makes the next call of the path.
void go_on(Path& path);
void go_on_at(void* path);

using Step = void (*)(Path& path);

/// The steps of call_steps.cpp, which is compiled once for each of these.
constexpr int steps_per_flavour = 10;
extern const Step steps_unoptimized[steps_per_flavour];
extern const Step steps_optimized[steps_per_flavour];
extern const Step steps_with_frame_pointers[steps_per_flavour];
extern const Step steps_realigned[steps_per_flavour];

}  // namespace call_paths
