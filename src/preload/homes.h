/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the homes: what is known of each live context, and its pool in context order, made at its first
 * allocation. Whose a pointer is.
 * Does not: wrap an entry point.
 *
 * A context is known by cuCtxGetId, which is never given twice; its handle may be another's tomorrow. A green
 * context "does not change the underlying context lifetime" (cuCtxFromGreenCtx): its memory is its device's
 * primary context's, an event of that one covers its work too, and so that one's pool serves it.
 * Who uses a home enters it, and its end waits until everybody has left. Hits enter nothing: a cache
 * that is closed serves none, and its end waits for one under way.
 *
 * One mutex over the list, held for a look; another over the making of homes and pools and over the
 * driver call that ends a context, never waited for by somebody who has entered.
 */
#ifndef FLW_PRELOAD_HOMES_H
#define FLW_PRELOAD_HOMES_H

#include <stdbool.h>

#include "pool/calls/hit_context.h"
#include "pool/pool.h"
#include "preload/bypass.h"

#define FLW_HOMES_MAX 256

struct flw_home {
    unsigned long long id; /* cuCtxGetId and 1; 0: this place is unused */
    CUcontext context;
    CUdevice device;
    bool is_primary;
    CUcontext main;             /* of a green context: the primary one, whose home serves it */
    unsigned long long main_id; /* 0: it is none */
    _Atomic bool is_refused;    /* a pool could not be made: everything passes through */
    fallow_pool *handle;        /* NULL: nothing was allocated here yet */
    struct flw_pool *_Atomic pool;
    _Atomic uint32_t users;
    _Atomic bool is_ending; /* no thread enters any more */
};

/* May a wrapper look into the caches? Mode cache or strict, a pool is there, nothing is to be done with
 * what is allocated, the process has not forked. */
extern _Atomic bool flw_homes_hit;
/* Does this process have pools at all: mode cache or strict, not dead, not from inside a call of
 * ours. */
bool flw_homes_serve(void);

/* The name of the calling thread's context, for flw_context_alloc; 0: it has none. */
static inline unsigned long long flw_home_id(CUresult (*get_id)(CUcontext, unsigned long long *))
{
    unsigned long long id = 0;
    return get_id(NULL, &id) == CUDA_SUCCESS ? id + 1 : 0;
}
unsigned long long flw_home_id_here(void);

/* ---- enter, leave */

/* The home that serves a context, or (NULL) to the present one, made if need be, and its pool if
 * that is wanted. NULL: pass through. */
struct flw_home *flw_home_enter(CUcontext context, bool wants_pool);
/* The context's own, a green one's too, which has no pool. */
struct flw_home *flw_home_enter_own(CUcontext context);
/* The home whose pool's memory holds the address, allocated or not. NULL: it is the driver's. */
struct flw_home *flw_home_enter_of(CUdeviceptr address);
void flw_home_leave(struct flw_home *home);

/* ---- the lives of contexts */

/* A context that the program has made or made current: epochs cover it from now on. */
void flw_homes_learn(CUcontext context);
/* Around a driver call that may end a context: of this handle, or a device's primary one (context
 * NULL). `is_over` of what the call has answered; without one nothing has ended. */
struct flw_ending {
    struct flw_home *home; /* NULL: unknown */
};
struct flw_ending flw_homes_begin_end(CUcontext context, CUdevice device);
void flw_homes_end(struct flw_ending ending, bool is_over);
/* Between the two: a green context of that handle has ended. */
void flw_homes_forget_green(CUcontext context);

/* ---- everything at once */

/* Give idle memory of every pool back to the driver; what came back. */
uint64_t flw_homes_trim(void);
/* Of a device: held by pools there, but not allocated. */
uint64_t flw_homes_idle_bytes(CUdevice device);

struct flw_home_counts {
    _Atomic uint64_t bypasses[FLW_BYPASS_COUNT]; /* that succeeded, in a process with pools */
    _Atomic uint64_t foreign_frees;              /* pointers that went to the driver */
    _Atomic uint64_t double_frees;               /* refused: freed already, or inside a block */
    _Atomic uint64_t retries, retries_served;    /* of allocating calls that ran out of memory */
    _Atomic uint64_t contexts_ended;
};
extern struct flw_home_counts flw_home_counts;
static inline void flw_home_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Called with each new pool, from inside the allocation that made it; NULL: none. Set before
 * main. */
extern void (*flw_homes_on_pool)(fallow_pool *pool, CUdevice device);
/* With each whose context has ended, one at a time, before it goes. */
extern void (*flw_homes_on_end)(struct flw_pool *pool);

void flw_homes_child(void); /* of a fork */

#endif
