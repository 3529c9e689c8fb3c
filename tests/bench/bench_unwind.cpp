// The time of capturing a native stack, with memlab's unwinder and others.
//
// Each figure is the median over 201 rounds of a loop that walks one stack of that many different
// functions. A round is shorter than a time slice of the scheduler; the unwinders take turns.
//
// libunwind takes part when it is installed. It is loaded with dlopen: linked, its functions would
// replace libgcc's and glibc's.
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "profiler/unwind/reference.hpp"
#include "profiler/unwind/rules.hpp"
#include "profiler/unwind/walk.hpp"
#include "tests/bench/timing.hpp"
#include "tests/unit/unwind/call_chain.hpp"

namespace unwind = memlab::profiler::unwind;
using memlab::bench::median;
using memlab::profiler::unwind::CapturedStack;

namespace {

CapturedStack stack;
void* addresses[CapturedStack::max_depth];
constexpr int max_depth = CapturedStack::max_depth;

__attribute__((noinline)) std::size_t by_memlab(int depth) {
    unwind::walk_stack(stack, static_cast<std::size_t>(depth), {});
    return stack.depth;
}

// Every capture finds no rule at all: what the first one costs.
__attribute__((noinline)) std::size_t by_memlab_cold(int depth) {
    unwind::clear_rules();
    return by_memlab(depth);
}

__attribute__((noinline)) std::size_t by_libgcc(int depth) {
    unwind::walk_stack_as_libgcc(stack, static_cast<std::size_t>(depth), {});
    return stack.depth;
}

__attribute__((noinline)) std::size_t by_glibc(int depth) {
    return static_cast<std::size_t>(backtrace(addresses, depth));
}

int (*libunwinds_backtrace)(void**, int) = nullptr;

__attribute__((noinline)) std::size_t by_libunwind(int depth) {
    return static_cast<std::size_t>(libunwinds_backtrace(addresses, depth));
}

__attribute__((noinline)) std::size_t by_frame_pointers(int depth) {
    const auto* frame = static_cast<void* const*>(__builtin_frame_address(0));
    int found = 0;
    while (found < depth) {
        addresses[found++] = frame[1];
        frame = static_cast<void* const*>(frame[0]);
    }
    return static_cast<std::size_t>(found);
}

struct Contender {
    const char* name;
    std::size_t (*walk)(int depth);
    void (*chain)(int depth, void (*at_leaf)(void*), void* argument);
    int repetitions;
    std::vector<double> nanoseconds;
};

struct Task {
    Contender* contender;
    int depth;
};

void measure(void* argument) {
    const Task& task = *static_cast<Task*>(argument);
    std::size_t frames = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < task.contender->repetitions; ++i) {
        frames += task.contender->walk(task.depth);
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    const auto expected = static_cast<std::size_t>(task.depth) *
                          static_cast<std::size_t>(task.contender->repetitions);
    if (frames != expected) {
        std::fprintf(stderr, "bench_unwind: %s found %zu frames of %zu\n", task.contender->name,
                     frames, expected);
        std::exit(1);
    }
    task.contender->nanoseconds.push_back(time.count() / task.contender->repetitions);
}

}  // namespace

int main() {
    static_assert(max_depth >= 100);
    std::vector<Contender> contenders{
        {"frame pointers", by_frame_pointers, call_chain_with_frame_pointers, 1000, {}},
        {"memlab", by_memlab, call_chain, 1000, {}},
        {"memlab, frame pointers", by_memlab, call_chain_with_frame_pointers, 1000, {}},
        {"memlab, nothing known", by_memlab_cold, call_chain, 5, {}},
        {"libgcc", by_libgcc, call_chain, 50, {}},
        {"glibc's backtrace()", by_glibc, call_chain, 50, {}},
    };
    if (void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL)) {
        libunwinds_backtrace =
            reinterpret_cast<int (*)(void**, int)>(dlsym(library, "unw_backtrace"));
        contenders.push_back({"libunwind", by_libunwind, call_chain, 1000, {}});
    }
    std::printf("%-24s %10s %10s %10s   ns a stack\n", "frames", "10", "40", "100");
    std::vector<std::vector<double>> table(contenders.size());
    for (const int depth : {10, 40, 100}) {
        for (int round = 0; round < 201; ++round) {
            for (Contender& contender : contenders) {
                Task task{&contender, depth};
                contender.chain(depth, measure, &task);
            }
        }
        for (std::size_t i = 0; i < contenders.size(); ++i) {
            table[i].push_back(median(contenders[i].nanoseconds));
            contenders[i].nanoseconds.clear();
        }
    }
    for (std::size_t i = 0; i < contenders.size(); ++i) {
        std::printf("%-24s %10.1f %10.1f %10.1f\n", contenders[i].name, table[i][0], table[i][1],
                    table[i][2]);
    }
    return 0;
}
