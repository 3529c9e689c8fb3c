// A call stack of its own for every number: each bit is a call of one of two functions.
#pragma once

namespace program {

/// Calls `body` in a stack that is `bits`'s own among the numbers below 2^levels.
template <bool odd = false, class Body>
[[gnu::noinline]] void in_stack(unsigned bits, int levels, const Body& body) {
    if (levels == 0) {
        body();
    } else if ((bits & 1) != 0) {
        in_stack<true>(bits >> 1, levels - 1, body);
    } else {
        in_stack<false>(bits >> 1, levels - 1, body);
    }
    asm volatile("" : : "n"(odd));  // no tail calls, and not the same code for both
}

}  // namespace program
