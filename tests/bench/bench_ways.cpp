// The time of capturing a native stack in a program with work of its own: it reaches its
// allocations by several call paths ("ways"), and evicts the caches in between.
//   bench_ways [KIB ...]
// For 1, 4, 16 and 64 paths in turn and each number of KIB written before each capture (0, 1024 and
// 4096): the mean of 2000 captures without the slowest hundredth. A stack has the same 20 functions
// at its outer end and 20 of its own path. Their frames differ in size; in the second of two lines
// they do not, so that all paths reach the capture with the same stack pointer.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "profiler/unwind/walk.hpp"

namespace unwind = memlab::profiler::unwind;
using memlab::profiler::unwind::CapturedStack;

namespace {

constexpr int max_ways = 64;
constexpr int functions = 20;

CapturedStack stack;
std::vector<char> other_memory;
std::vector<double> nanoseconds;

__attribute__((noinline)) std::size_t capture() {
    std::memset(other_memory.data(), static_cast<int>(nanoseconds.size()), other_memory.size());
    const auto begin = std::chrono::steady_clock::now();
    unwind::walk_stack(stack, 64, {});
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    nanoseconds.push_back(time.count());
    return stack.depth;
}

// A frame of this many bytes around the call of `inner`, which is no tail call. `mark` makes code
// that is not another one's.
template <std::size_t bytes, class Inner>
std::size_t framed(const Inner& inner, char mark = 0) {
    volatile char frame[bytes];
    frame[0] = mark;
    return inner() + static_cast<std::size_t>(frame[0]);
}

enum class Frames { of_different_sizes, alike };

template <Frames frames, int way, int left>
__attribute__((noinline)) std::size_t own() {
    constexpr bool alike = frames == Frames::alike;
    if constexpr (left == 0) {
        return framed < alike ? 64 : 16 * way + 16 > (capture, way);
    } else {
        return framed < alike
                   ? 64
                   : 16 * ((way * 7 + left * 3) % 5) + 16 > (own<frames, way, left - 1>, way);
    }
}

template <int left>
__attribute__((noinline)) std::size_t common(std::size_t (*way)()) {
    if constexpr (left == 0) {
        return framed<16>(way);
    } else {
        return framed<16>([way] { return common<left - 1>(way); });
    }
}

template <Frames frames, int... way>
constexpr std::array<std::size_t (*)(), sizeof...(way)> all_ways(
    std::integer_sequence<int, way...> /*numbers*/) {
    return {own<frames, way, functions>...};
}

template <Frames frames>
double measure(std::size_t ways, std::size_t kib) {
    constexpr std::size_t captures = 2000;
    constexpr std::size_t warm_up = 1000;
    static constexpr auto table = all_ways<frames>(std::make_integer_sequence<int, max_ways>());
    other_memory.assign(kib << 10, 0);
    nanoseconds.clear();
    for (std::size_t i = 0; i < warm_up + captures; ++i) {
        if (common<functions>(table[i % ways]) < 2 * functions) {
            std::fprintf(stderr, "bench_ways: a stack of %zu frames\n", stack.depth);
            std::exit(1);
        }
    }
    nanoseconds.erase(nanoseconds.begin(), nanoseconds.begin() + warm_up);
    std::sort(nanoseconds.begin(), nanoseconds.end());
    nanoseconds.resize(captures - captures / 100);
    return std::accumulate(nanoseconds.begin(), nanoseconds.end(), 0.0) /
           static_cast<double>(nanoseconds.size());
}

template <Frames frames>
void print_line(std::size_t kib, const char* what) {
    std::printf("%6zu KiB between%-18s", kib, what);
    for (const std::size_t ways : {1U, 4U, 16U, 64U}) {
        std::printf("%8.0f", measure<frames>(ways, kib));
    }
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::size_t> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(std::strtoul(argv[i], nullptr, 10));
    }
    if (sizes.empty()) {
        sizes = {0, 1024, 4096};
    }
    std::printf("%-36s", "ways");
    for (const int ways : {1, 4, 16, 64}) {
        std::printf("%8d", ways);
    }
    std::printf("   ns a stack\n");
    for (const std::size_t kib : sizes) {
        print_line<Frames::of_different_sizes>(kib, "");
        print_line<Frames::alike>(kib, ", frames alike");
    }
    return 0;
}
