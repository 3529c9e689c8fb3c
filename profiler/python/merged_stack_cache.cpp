#include "profiler/python/merged_stack_cache.hpp"

namespace memlab::profiler::python {

[[gnu::hot]] StackHash hash_parts(const StackView& native, const Frames& python,
                                  std::uint64_t epoch) {
    const std::uint64_t sizes = native.depth << 32 | python.frame_count << 16 |
                                python.activation_count << 3 | (native.ends_early ? 4U : 0U) |
                                (python.truncated ? 2U : 0U) | (native.truncated ? 1U : 0U);
    StackHasher hasher(sizes, epoch);
    hasher.add(
        native.depth, [&](std::size_t i) { return native.addresses[i]; },
        [&](std::size_t i) { return native.ends[i]; });
    // Two 32-bit ids per word.
    const std::size_t count = python.frame_count;
    const RawFrame* const frames = python.frames();
    hasher.add(
        count / 4,
        [&](std::size_t i) { return std::uint64_t{frames[4 * i].id} << 32 | frames[4 * i + 1].id; },
        [&](std::size_t i) {
            return std::uint64_t{frames[4 * i + 2].id} << 32 | frames[4 * i + 3].id;
        });
    hasher.add(
        count % 4, [&](std::size_t i) { return std::uint64_t{frames[count - 1 - i].id}; },
        [](std::size_t) { return std::uint64_t{0}; });
    hasher.add(
        python.activation_count,
        [&](std::size_t i) { return std::uint64_t{python.activations[i].stack_address}; },
        [&](std::size_t i) { return std::uint64_t{python.activations[i].end}; });
    return hasher.result();
}

}  // namespace memlab::profiler::python
