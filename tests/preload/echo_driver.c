/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a libcuda.so.1 with every hooked entry point; each records the arguments.
 * Does not: do anything else. */
#include "echo.h"

static struct echo last;

__attribute__((visibility("default"))) const struct echo *echo_last(void)
{
    return &last;
}

enum {
#define X(symbol, base, since, parameters, arguments) ECHO_##symbol,
    FLW_HOOK_LIST(X)
#undef X
};

#define X(symbol, base, since, parameters, arguments)                                           \
    __attribute__((visibility("default"))) int echo_##symbol(ECHO_PARAMETERS) __asm__(#symbol); \
    int echo_##symbol(ECHO_PARAMETERS)                                                          \
    {                                                                                           \
        int calls = last.calls + 1;                                                             \
        last = (struct echo){ECHO_##symbol, calls, {a, b, c, d, e, f, g, h, i, j, k, l}};       \
        return echo_answer(ECHO_##symbol);                                                      \
    }
FLW_HOOK_LIST(X)
#undef X
