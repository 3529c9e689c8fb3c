// A function that the compiler takes apart, as it does the interpreter's loop.
#include "profiler/python/loop_code.hpp"

#include <cstdint>

#include "tests/catch.hpp"

using memlab::profiler::python::find_loop_code;
using memlab::profiler::python::LoopCode;

// As compilers write it: what is rarely run has no symbol of its own to be found by, but unwind
// tables. memlab_test_loop(kind) gives the address behind the call that it makes for 0 to 9: that
// for 0 is in the first part, the others are in the second.
asm(R"(
    .text
    .type memlab_test_where, @function
memlab_test_where:
    .cfi_startproc
    mov (%rsp), %rax
    ret
    .cfi_endproc
    .size memlab_test_where, . - memlab_test_where

    .type memlab_test_loop, @function
memlab_test_loop:
    .cfi_startproc
    sub $8, %rsp
    .cfi_def_cfa_offset 16
    .irp kind, 1, 2, 3, 4, 5, 6, 7, 8, 9
    cmp $\kind, %edi
    je .Lmemlab_test_\kind
    .endr
    call memlab_test_where
.Lmemlab_test_end:
    add $8, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size memlab_test_loop, . - memlab_test_loop

    .section .text.unlikely, "ax", @progbits
memlab_test_loop_cold:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    .irp kind, 1, 2, 3, 4, 5, 6, 7, 8, 9
.Lmemlab_test_\kind:
    call memlab_test_where
    jmp .Lmemlab_test_end
    .endr
    .cfi_endproc
    .text
)");
extern "C" std::uintptr_t memlab_test_loop(int kind);
extern "C" std::uintptr_t memlab_test_where();

TEST_CASE("both parts of a function are found") {
    const LoopCode code = find_loop_code(reinterpret_cast<std::uintptr_t>(&memlab_test_loop));
    REQUIRE_FALSE(code.parts[0].empty());
    REQUIRE_FALSE(code.parts[1].empty());
    CHECK(code.parts[0].contains(memlab_test_loop(0)));
    for (int kind = 0; kind <= 9; ++kind) {
        CAPTURE(kind);
        CHECK(code.returns_to(memlab_test_loop(kind)));
        CHECK((kind == 0 || code.parts[1].contains(memlab_test_loop(kind))));
    }
    CHECK_FALSE(code.returns_to(memlab_test_where()));
}

TEST_CASE("an address without code has no parts") {
    static const int data = 0;
    const LoopCode code = find_loop_code(reinterpret_cast<std::uintptr_t>(&data));
    CHECK(code.parts[0].empty());
    CHECK(code.parts[1].empty());
    CHECK_FALSE(code.returns_to(reinterpret_cast<std::uintptr_t>(&data)));
}
