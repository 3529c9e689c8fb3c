/* The exported vfork: notes the child, then jumps to the real one with the stack as the caller left
 * it. vfork returns twice through the caller's frame, so no frame of ours may be in between. */

    .text
    .globl  vfork
    .type   vfork, @function
    .p2align 4
vfork:
    .cfi_startproc
    endbr64
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    call    memlab_before_vfork
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    jmp     *%rax
    .cfi_endproc
    .size   vfork, .-vfork

    .section .note.GNU-stack, "", @progbits
