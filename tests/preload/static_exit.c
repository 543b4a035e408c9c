/* SPDX-License-Identifier: Apache-2.0
 *
 * A program without a loader and a C library, for machines without static archives: it exits with
 * 5. */
void _start(void);

void _start(void)
{
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(60L), "D"(5L) : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = 93;
    register long code __asm__("x0") = 5;
    __asm__ volatile("svc 0" : : "r"(number), "r"(code) : "memory");
#endif
    for (;;) {
    }
}
