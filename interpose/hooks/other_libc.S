/* Keeps musl's programs as they are: under LD_PRELOAD=libmemlab.so they would not start, since musl's
 * loader ends a program whose preload needs symbols that musl lacks. But a preload that has these two
 * symbols it takes for a second libc, drops it and goes on (load_library in ldso/dynlink.c), as it does
 * with a file that it does not find.
 *
 * So one LD_PRELOAD can stand in the environment of a whole container: it is for the programs of glibc,
 * and in those of musl there is no trace of it.
 *
 * glibc's loader must not see them: hide_symbols.py marks them as hidden in the linked library, which
 * glibc's lookups ignore and musl's do not ask for. No linker keeps a symbol that is hidden before. */

    /* Neither is ever read or called: musl only looks for the names, with a value that is not 0. */
    .section .rodata
    .globl  stdin
    .type   stdin, @object
    .p2align 3
stdin:
    .quad   0
    .size   stdin, .-stdin

    .text
    .globl  __libc_start_main
    .type   __libc_start_main, @function
__libc_start_main:
    .cfi_startproc
    ud2
    .cfi_endproc
    .size   __libc_start_main, .-__libc_start_main

    .section .note.GNU-stack, "", @progbits
