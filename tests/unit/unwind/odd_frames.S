/* Frames that compilers hardly make, each with what .eh_frame says about it, and lies. Each calls
 * its first argument with its second. */

    .text

/* void frame_by_rbx(fn, argument): the CFA is relative to rbx. */
    .globl  frame_by_rbx
    .hidden frame_by_rbx
    .type   frame_by_rbx, @function
frame_by_rbx:
    .cfi_startproc
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbx, -16
    movq    %rsp, %rbx
    .cfi_def_cfa_register %rbx
    andq    $-64, %rsp
    subq    $128, %rsp
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    movq    %rbx, %rsp
    .cfi_def_cfa_register %rsp
    popq    %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size   frame_by_rbx, .-frame_by_rbx

/* void frame_by_r12(fn, argument): relative to r12, and the caller's rbp waits in r13. */
    .globl  frame_by_r12
    .hidden frame_by_r12
    .type   frame_by_r12, @function
frame_by_r12:
    .cfi_startproc
    pushq   %r12
    .cfi_adjust_cfa_offset 8
    .cfi_offset %r12, -16
    pushq   %r13
    .cfi_adjust_cfa_offset 8
    .cfi_offset %r13, -24
    movq    %rbp, %r13
    .cfi_register %rbp, %r13
    movq    %rsp, %r12
    .cfi_def_cfa_register %r12
    xorl    %ebp, %ebp
    subq    $72, %rsp
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    movq    %r12, %rsp
    .cfi_def_cfa_register %rsp
    movq    %r13, %rbp
    .cfi_restore %rbp
    popq    %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r13
    popq    %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore %r12
    ret
    .cfi_endproc
    .size   frame_by_r12, .-frame_by_r12

/* void frame_by_expression(fn, argument): the CFA is kept where rsp points. */
    .globl  frame_by_expression
    .hidden frame_by_expression
    .type   frame_by_expression, @function
frame_by_expression:
    .cfi_startproc
    leaq    8(%rsp), %rax
    subq    $40, %rsp
    .cfi_adjust_cfa_offset 40
    movq    %rax, (%rsp)
    /* DW_CFA_def_cfa_expression, 3 bytes: DW_OP_breg7 0, DW_OP_deref */
    .cfi_escape 0x0f, 0x03, 0x77, 0x00, 0x06
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    addq    $40, %rsp
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size   frame_by_expression, .-frame_by_expression

/* void frame_without_tables(fn, argument): nothing is said about it. */
    .globl  frame_without_tables
    .hidden frame_without_tables
    .type   frame_without_tables, @function
frame_without_tables:
    subq    $8, %rsp
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    addq    $8, %rsp
    ret
    .size   frame_without_tables, .-frame_without_tables

/* void frame_that_lies(fn, argument, rbp): says that the CFA is relative to rbp, which holds the
 * third argument. */
    .globl  frame_that_lies
    .hidden frame_that_lies
    .type   frame_that_lies, @function
frame_that_lies:
    .cfi_startproc
    pushq   %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -16
    movq    %rdx, %rbp
    .cfi_def_cfa_register %rbp
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    popq    %rbp
    .cfi_restore %rbp
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size   frame_that_lies, .-frame_that_lies

/* void frame_on_stack(fn, argument, top): calls on another stack, whose words at `top` it takes for
 * the return address and what is above it. */
    .globl  frame_on_stack
    .hidden frame_on_stack
    .type   frame_on_stack, @function
frame_on_stack:
    .cfi_startproc
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbx, -16
    movq    %rsp, %rbx
    movq    %rdx, %rsp
    .cfi_remember_state
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbx
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    movq    %rbx, %rsp
    .cfi_restore_state
    popq    %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size   frame_on_stack, .-frame_on_stack

    .section .note.GNU-stack, "", @progbits
