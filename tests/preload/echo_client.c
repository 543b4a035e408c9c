/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that calls every hooked entry point and compares arguments and results with
 * those in the driver.
 * Does not: need the preload; without it the driver is called directly. */
#include "echo.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define X(symbol, base, since, parameters, arguments) \
    extern int call_##symbol(ECHO_PARAMETERS) __asm__(#symbol);
FLW_HOOK_LIST(X)
#undef X

static const struct {
    const char *symbol, *arguments;
    int (*call)(ECHO_PARAMETERS);
} hooks[] = {
#define X(symbol, base, since, parameters, arguments) {#symbol, #arguments, call_##symbol},
    FLW_HOOK_LIST(X)
#undef X
};

static int count_arguments(const char *text)
{
    int count = strcmp(text, "()") != 0;
    for (; *text != '\0'; text++) {
        count += *text == ',';
    }
    return count;
}

int main(void)
{
    int wrong = 0, count = (int)(sizeof hooks / sizeof *hooks);
    for (int i = 0; i < count; i++) {
        int calls = echo_last()->calls;
        int answer =
            hooks[i].call(0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc);
        const struct echo *echo = echo_last();
        int arrived = answer == echo_answer(i) && echo->hook == i && echo->calls == calls + 1;
        for (int k = 0; k < count_arguments(hooks[i].arguments); k++) {
            arrived = arrived && (echo->argument[k] & 0xff) == 0x11 * (k + 1);
        }
        if (!arrived) {
            printf("%s did not arrive as it was called\n", hooks[i].symbol);
            wrong++;
        }
    }
    Dl_info where;
    const char *object = dladdr((void *)(size_t)hooks[0].call, &where) ? where.dli_fname : "?";
    const char *slash = strrchr(object, '/');
    printf("from cuMemAlloc_v2 %s\n", slash != NULL ? slash + 1 : object);
    printf("%d hooks, %d wrong\n", count, wrong);
    return wrong > 0;
}
