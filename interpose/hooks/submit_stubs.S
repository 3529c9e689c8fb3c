/* The exported functions of submitting_functions.inc: each jumps to its wrapper in hooks/submit.cpp,
 * arguments and return address untouched. */

    .macro submit_stub name
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    jmp     *memlab_submit_wrappers+(8 * stub)(%rip)
    .cfi_endproc
    .size   \name, .-\name
    .set    stub, stub + 1
    .endm

    .text
    .set    stub, 0
#define MEMLAB_HOOK(symbol, base, version, per_thread) submit_stub symbol
#include "interpose/driver/submitting_functions.inc"
#undef MEMLAB_HOOK

    .section .note.GNU-stack, "", @progbits
