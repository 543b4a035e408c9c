/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a driver in front of the simulated one that ends the process with a line if it is
 * unloaded, or called after its own exit handler. It has no cuCtxCreate_v2.
 * Does not: implement a call itself. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"

#define LEFT_OUT "cuCtxCreate_v2"

#if defined(__aarch64__)
#define JUMP_TO(place) "adrp x16, " place "\n ldr x16, [x16, :lo12:" place "]\n br x16\n"
#else
#define JUMP_TO(place) "jmp *" place "(%rip)\n"
#endif

/* An entry point jumps to the address in the slot, with an unchanged call frame. */
#define X(need, symbol, since, before, parameters)                    \
    __attribute__((used, visibility("hidden"))) void *front_##symbol; \
    __asm__(".pushsection .text\n"                                    \
            ".ifnc " #symbol ", " LEFT_OUT "\n"                       \
            ".globl " #symbol "\n"                                    \
            ".endif\n"                                                \
            ".type " #symbol ", %function\n" #symbol                  \
            ":\n" JUMP_TO("front_" #symbol) ".size " #symbol ", . - " #symbol "\n.popsection\n");
FLW_DRIVER_ENTRY_POINTS(X)
#undef X

static CUresult (*real_init)(unsigned flags);
static bool is_started, is_over;

static void stop(const char *line)
{
    ssize_t written = write(STDERR_FILENO, line, strlen(line));
    (void)written;
    abort();
}

static void come_too_late(void)
{
    stop("front driver: called after its handler of the exit\n");
}

/* Every later call is an error. Wait a moment for one. */
static void leave(void)
{
    void (*late)(void) = come_too_late;
    void *address;
    memcpy(&address, &late, sizeof address);
#define X(need, symbol, since, before, parameters) \
    __atomic_store_n(&front_##symbol, address, __ATOMIC_SEQ_CST);
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    is_over = true;
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}

static CUresult start(unsigned flags)
{
    if (!is_started && atexit(leave) != 0) {
        return CUDA_ERROR_UNKNOWN;
    }
    is_started = true;
    return real_init(flags);
}

__attribute__((constructor)) static void find_driver(void)
{
    void *object = dlopen(FLW_SIMCUDA, RTLD_NOW | RTLD_LOCAL);
    CUresult (*own)(unsigned flags) = start;
    if (object == NULL) {
        stop("front driver: no simulated driver\n");
    }
#define X(need, symbol, since, before, parameters) front_##symbol = dlsym(object, #symbol);
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    memcpy(&real_init, &front_cuInit, sizeof real_init);
    memcpy(&front_cuInit, &own, sizeof front_cuInit);
}

__attribute__((destructor)) static void unload(void)
{
    if (is_started && !is_over) {
        stop("front driver: unloaded while the process lives\n");
    }
}
