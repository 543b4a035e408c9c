/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the life of the preload library in a process: start before main, fork in three phases,
 * exit, and the state that wrappers check. The parts are in a list.
 * Does not: call the driver, ever: not at start, not in a fork, not at exit. */
#ifndef FLW_PRELOAD_LIFE_H
#define FLW_PRELOAD_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver/driver_types.h"

enum flw_life {
    FLW_LIFE_FRESH,   /* the driver was not used yet */
    FLW_LIFE_USED,    /* a part holds driver state */
    FLW_LIFE_EXITING, /* the driver is shutting down: our blocks are freed without calls */
    FLW_LIFE_DEAD     /* the child of a fork after use: everything passes through */
};

extern _Atomic int flw_life;

/* A part of the library; any function may be NULL. `start` runs before main with the settings
 * read; `use` at the first use of the driver, possibly on several threads at once; the fork phases
 * as pthread_atfork's, prepare in the list's order, the others in reverse; `child` with the state
 * already DEAD or FRESH; `end` at exit, in reverse order. None may call the driver, and none may
 * use the program's malloc. */
struct flw_part {
    void (*start)(void);
    void (*use)(void);
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
    void (*end)(void);
};

/* clang-format off */
#define FLW_PART_LIST(X) \
    X(memory) /* hooks_memory.c */ \
    X(trace)  /* hooks_trace.c */ \
    X(fill)   /* hooks_fill.c */ \
    X(summary) /* summary.c */
/* clang-format on */

#define X(name) extern const struct flw_part flw_part_##name;
FLW_PART_LIST(X)
#undef X

static inline enum flw_life flw_life_state(void)
{
    return (enum flw_life)atomic_load_explicit(&flw_life, memory_order_relaxed);
}

/* Call before a part first holds driver state: from now on a child of this process is dead. */
void flw_life_use(void);

/* The same for a part without driver state, so that a child may continue. */
void flw_life_note_use(void);

/* Return a driver call's result: the first CUDA_ERROR_DEINITIALIZED begins the exit. */
CUresult flw_life_heed(CUresult result);

#endif
