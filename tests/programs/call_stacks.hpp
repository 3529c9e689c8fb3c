// A call stack of its own for every number: each bit is a call of one of two functions.
#pragma once

namespace program {

template <class Body>
[[gnu::noinline]] void in_odd_stack(unsigned bits, int levels, const Body& body);

/// Calls `body` in a stack that is `bits`'s own among the numbers below 2^levels.
template <class Body>
[[gnu::noinline]] void in_stack(unsigned bits, int levels, const Body& body) {
    if (levels == 0) {
        body();
    } else if ((bits & 1) != 0) {
        in_odd_stack(bits >> 1, levels - 1, body);
    } else {
        in_stack(bits >> 1, levels - 1, body);
    }
    asm volatile("");  // no tail calls
}

template <class Body>
[[gnu::noinline]] void in_odd_stack(unsigned bits, int levels, const Body& body) {
    if (levels == 0) {
        body();
    } else if ((bits & 1) != 0) {
        in_odd_stack(bits >> 1, levels - 1, body);
    } else {
        in_stack(bits >> 1, levels - 1, body);
    }
    asm volatile("" ::: "memory");  // not the same code as the other
}

}  // namespace program
