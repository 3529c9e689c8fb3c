/* The exported dlsym, dlvsym, dlopen and dlmopen.
 *
 * Each jumps to the next library's function of its name with registers, stack and return address as
 * the caller left them: dlsym(RTLD_NEXT, ...) resolves relative to its caller, dlopen searches by
 * its caller's RUNPATH, and a C wrapper would hide the caller. For names that are memlab's, dlsym
 * jumps to memlab_dlsym_hooked, which replaces what the next one returns; the caller's return
 * address is its third argument.
 *
 * A file of its own rather than inline assembly: LTO may drop or duplicate top-level asm, and no
 * sanitizer may instrument it. */

    .macro save_arguments
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    .endm

    .macro restore_arguments
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    .endm

    .macro begin name
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    .endm

    .macro end name
    .cfi_endproc
    .size   \name, .-\name
    .endm

    .text
    begin dlsym                         /* (handle, name) */
    save_arguments
    movq    %rsi, %rdi
    call    memlab_dlsym_route
    restore_arguments
    testl   %eax, %eax
    jne     .Lhooked
    jmp     *memlab_next_dlsym(%rip)
.Lhooked:
    movq    (%rsp), %rdx
    jmp     memlab_dlsym_hooked
    end dlsym

    begin dlvsym                        /* (handle, name, version) */
    save_arguments
    movq    %rsi, %rdi
    movq    24(%rsp), %rsi
    call    memlab_dlvsym_route
    restore_arguments
    testl   %eax, %eax
    jne     .Lof_dlsym
    jmp     *memlab_next_dlvsym(%rip)
.Lof_dlsym:
    jmp     memlab_dlvsym_of_dlsym
    end dlvsym

    begin dlopen                        /* (file, mode) */
    save_arguments
    movl    %esi, %edx
    movq    %rdi, %rsi
    xorl    %edi, %edi                  /* LM_ID_BASE */
    call    memlab_before_dlopen
    restore_arguments
    jmp     *memlab_next_dlopen(%rip)
    end dlopen

    begin dlmopen                       /* (namespace, file, mode) */
    save_arguments
    call    memlab_before_dlopen
    restore_arguments
    jmp     *memlab_next_dlmopen(%rip)
    end dlmopen

    .section .note.GNU-stack, "", @progbits
