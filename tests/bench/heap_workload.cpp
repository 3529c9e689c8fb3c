// Allocates and frees host memory as synthetic_run.hpp's training run does device memory: the same
// number of calls, as many call sites, blocks that live as long. For a heap profiler to record.
//
//   heap_workload CALLS SITES      calls of malloc and free together; up to 4096 sites
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t callers = 64;
constexpr std::size_t callees = 64;

// A site is a pair of functions, one called by the other. The assembler comments keep the compiler
// from making one function of several, and from leaving out frames by tail calls.
template <std::size_t Callee>
[[gnu::noinline]] void* allocate(std::size_t size) {
    void* block = std::malloc(size);
    asm volatile("# callee %c0" : : "i"(Callee), "r"(block));
    return block;
}

using Allocate = void* (*)(std::size_t size);

template <std::size_t Caller>
[[gnu::noinline]] void* layer(Allocate callee, std::size_t size) {
    void* block = callee(size);
    asm volatile("# caller %c0" : : "i"(Caller), "r"(block));
    return block;
}

using Layer = void* (*)(Allocate callee, std::size_t size);

template <std::size_t... Index>
constexpr std::array<Allocate, callees> all_callees(std::index_sequence<Index...> /*indexes*/) {
    return {&allocate<Index>...};
}
template <std::size_t... Index>
constexpr std::array<Layer, callers> all_callers(std::index_sequence<Index...> /*indexes*/) {
    return {&layer<Index>...};
}

class Workload {
  public:
    Workload(std::uint64_t calls, std::uint32_t sites) : calls_(calls), sites_(sites) {}

    /// The calls that were made: some more than asked for, since a step is not broken off.
    std::uint64_t run() {
        std::vector<void*> weights;
        for (std::uint32_t i = 0; i < sites_ && made_ < calls_; ++i) {
            weights.push_back(take());
        }
        while (made_ < calls_) {
            step();
        }
        return made_;  // the weights are left to the end of the process, as programs do
    }

  private:
    /// A third is temporary, the rest is freed in the opposite order on the way back.
    void step() {
        std::vector<void*> held;
        held.reserve(sites_);
        for (std::uint32_t i = 0; i < sites_; ++i) {
            void* block = take();
            if (random() % 3 == 0) {
                give_back(block);
            } else {
                held.push_back(block);
            }
        }
        while (!held.empty()) {
            give_back(held.back());
            held.pop_back();
        }
    }

    void* take() {
        static constexpr auto callee = all_callees(std::make_index_sequence<callees>());
        static constexpr auto caller = all_callers(std::make_index_sequence<callers>());
        const std::uint32_t site = next_site_;
        next_site_ = (next_site_ + 1) % sites_;
        ++made_;
        const std::size_t size = (std::size_t{64} << (site % 8)) + 16 * (random() % 4);
        return caller[site / callees](callee[site % callees], size);
    }
    void give_back(void* block) {
        ++made_;
        std::free(block);
    }

    std::uint64_t random() {  // xorshift64
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ >> 32;
    }

    const std::uint64_t calls_;
    const std::uint32_t sites_;
    std::uint64_t made_ = 0;
    std::uint32_t next_site_ = 0;
    std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t calls = argc == 3 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const unsigned long sites = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (calls == 0 || sites == 0 || sites > callers * callees) {
        std::fputs("usage: heap_workload CALLS SITES (1 to 4096)\n", stderr);
        return 2;
    }
    Workload workload(calls, static_cast<std::uint32_t>(sites));
    std::printf("%llu calls\n", static_cast<unsigned long long>(workload.run()));
    return 0;
}
