// Allocations from many distinct call stacks, as recursive algorithms, interpreters and task graphs
// have them.
//
//   many_stacks STACKS   at most 2^20
//
// Recorded: STACKS allocations of 4096 bytes, all but 100 of them freed.
#include "call_stacks.hpp"
#include "program.hpp"

using namespace program;

namespace {

constexpr int levels = 20;
constexpr unsigned kept = 100;

}  // namespace

int main(int argc, char** argv) {
    const auto stacks = static_cast<unsigned>(argc == 2 ? std::strtoul(argv[1], nullptr, 10) : 0);
    use_device();
    for (unsigned i = 0; i < stacks; ++i) {
        in_stack(i, levels, [i] {
            const CUdeviceptr block = allocate(4096);
            if (i >= kept) {
                release(block);
            }
        });
    }
    SAY("done\n");
    return 0;
}
