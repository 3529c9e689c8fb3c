// A hundred functions that call each other, each with a frame of its own size, compiled twice: with
// frame pointers and without.
#include "tests/unit/unwind/call_chain.hpp"

#include <cstddef>
#include <utility>

namespace {

struct Chain {
    int depth;
    void (*at_leaf)(void*);
    void* argument;
};

template <std::size_t Level>
__attribute__((noinline)) int call(const Chain& chain, int level) {
    volatile char room[8 + 16 * (Level % 7)];
    room[0] = static_cast<char>(level);
    if (level + 1 == chain.depth) {
        chain.at_leaf(chain.argument);
    } else if constexpr (Level < 100) {
        call<Level + 1>(chain, level + 1);
    }
    return room[0];  // after the call: no tail call
}

}  // namespace

void MEMLAB_CALL_CHAIN(int depth, void (*at_leaf)(void*), void* argument) {
    call<1>(Chain{depth, at_leaf, argument}, 0);
}
