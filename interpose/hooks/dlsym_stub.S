/* The exported dlsym.
 *
 * For every name that is not one of ours it jumps to the C library's dlsym with registers, stack
 * and return address as the caller left them: dlsym(RTLD_NEXT, ...) resolves relative to its
 * caller, which a C wrapper would hide. For our names it jumps to memlab_dlsym_hooked, which
 * replaces what the real one returns; the caller's return address is its third argument.
 *
 * A file of its own rather than inline assembly: LTO may drop or duplicate top-level asm, and no
 * sanitizer may instrument it. */

    .text
    .globl  dlsym
    .type   dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq    %rsi, %rdi
    call    memlab_dlsym_route
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testl   %eax, %eax
    jne     .Lours
    jmp     *memlab_real_dlsym(%rip)
.Lours:
    movq    (%rsp), %rdx
    jmp     memlab_dlsym_hooked
    .cfi_endproc
    .size   dlsym, .-dlsym

    .section .note.GNU-stack, "", @progbits
