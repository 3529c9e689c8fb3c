#include "profiler/python/merged_stack_cache.hpp"

#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {

// Short rather than fast: between two calls the program evicts it.
[[gnu::hot]] StackHash hash_parts(const StackHash& native, const Frames& python) {
    const std::uint64_t sizes =
        python.frame_count << 16 | python.activation_count << 3 | (python.truncated ? 2U : 0U) | 1U;
    const std::uint64_t other = native.check ^ mix_factor;
    std::uint64_t hash = mix(native.index ^ sizes, mix_factor);
    const auto add = [&](std::uint64_t word) { hash = mix(hash ^ word, other); };
    const std::size_t count = python.frame_count;
    const RawFrame* const frames = python.frames();
#pragma GCC unroll 1
    for (std::size_t i = 1; i < count; i += 2) {
        add(std::uint64_t{frames[i - 1].id} << 32 | frames[i].id);
    }
    if (count % 2 != 0) {
        add(frames[count - 1].id);
    }
#pragma GCC unroll 1
    for (std::size_t i = 0; i < python.activation_count; ++i) {
        add(std::uint64_t{python.activations[i].stack_address} << 16 | python.activations[i].end);
    }
    return {hash, mix(hash ^ mix_factor, other)};
}

}  // namespace memlab::profiler::python
