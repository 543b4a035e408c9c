/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exported dlsym, in assembly: RTLD_DEFAULT is 0 and RTLD_NEXT is -1, so handle + 1 is
 * at most 1 for both. Every other handle jumps to flw_dlsym_find, which may make calls. For these
 * two, flw_dlsym_route returns the function to jump to, with unchanged handle, name and return
 * address. Without a version, dlsym serves programs of every version of the C library. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".protected dlsym\n" /* as FLW_PRELOAD_EXPORT */
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    leaq 1(%rdi), %rax\n"
        "    cmpq $1, %rax\n"
        "    ja flw_dlsym_find\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call flw_dlsym_route\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".protected dlsym\n" /* as FLW_PRELOAD_EXPORT */
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    add x2, x0, #1\n"
        "    cmp x2, #1\n"
        "    b.ls 1f\n"
        "    b flw_dlsym_find\n"
        "1:  stp x29, x30, [sp, #-32]!\n"
        "    .cfi_adjust_cfa_offset 32\n"
        "    .cfi_rel_offset x29, 0\n"
        "    .cfi_rel_offset x30, 8\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl flw_dlsym_route\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_adjust_cfa_offset -32\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    br x16\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#error "dlsym's entry is written for x86-64 and AArch64"
#endif
