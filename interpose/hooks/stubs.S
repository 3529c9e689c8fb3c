/* The exported functions of submitting_functions.inc and implicit_functions.inc: each jumps to its
 * wrapper in hooks/submit.cpp or hooks/implicit.cpp, arguments and return address untouched. */

    .macro stub name, table
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    jmp     *\table+(8 * number)(%rip)
    .cfi_endproc
    .size   \name, .-\name
    .set    number, number + 1
    .endm

    /* Beside what every launch and allocation runs, see [[gnu::hot]]. */
    .section .text.hot, "ax", @progbits
    .set    number, 0
#define MEMLAB_HOOK(symbol, base, version, per_thread) stub symbol, memlab_submit_wrappers
#include "interpose/driver/submitting_functions.inc"
#undef MEMLAB_HOOK

    .text
    .set    number, 0
#define MEMLAB_HOOK(symbol, base, version, per_thread) stub symbol, memlab_implicit_wrappers
#include "interpose/driver/implicit_functions.inc"
#undef MEMLAB_HOOK

    .section .note.GNU-stack, "", @progbits
