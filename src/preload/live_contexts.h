/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the records: a record of each live context, and the pool in context order, created at the
 * first allocation. Finds the record of a pointer.
 * Does not: wrap an entry point.
 *
 * A context is identified by cuCtxGetId, which is never reused, unlike the handle. A green context
 * "does not change the underlying context lifetime" (cuCtxFromGreenCtx): the memory belongs to the
 * device's primary context, whose event covers the work too, so that context's pool serves it. A
 * user of a record enters it, and the record's end waits until all users have left. Hits enter
 * nothing: a closed cache serves none, and closing waits for a hit under way.
 *
 * One mutex for the list, held briefly; another for creating records and pools and for the driver
 * call that ends a context. A thread inside a record never waits for the latter. */
#ifndef FLW_PRELOAD_LIVE_CONTEXTS_H
#define FLW_PRELOAD_LIVE_CONTEXTS_H

#include <stdbool.h>

#include "pool/calls/hit_context.h"
#include "pool/pool.h"
#include "preload/bypass.h"

#define FLW_HOMES_MAX 256

struct flw_live_context {
    unsigned long long id; /* cuCtxGetId + 1; 0: this place is unused */
    CUcontext context;
    CUdevice device;
    bool is_primary;
    CUcontext main;             /* of a green context: the primary one, with the record that
                                    serves it */
    unsigned long long main_id; /* 0: not a green context */
    _Atomic bool is_refused;    /* no pool could be created: everything passes through */
    fallow_pool *handle;        /* NULL: nothing was allocated here yet */
    struct flw_pool *_Atomic pool;
    _Atomic uint32_t users;
    _Atomic bool is_ending; /* no more threads enter */
};

/* True if wrappers may use the caches: mode cache or strict, there is a pool, allocations need no
 * further action, the process has not forked. */
extern _Atomic bool flw_live_contexts_hit;
/* True if this process has pools: mode cache or strict, not dead, and not inside one of our own
 * calls. */
bool flw_live_contexts_serve(void);

/* Return the id of the calling thread's context for flw_context_alloc; 0: none. */
static inline unsigned long long flw_live_context_id(CUresult (*get_id)(CUcontext,
                                                                        unsigned long long *))
{
    unsigned long long id = 0;
    return get_id(NULL, &id) == CUDA_SUCCESS ? id + 1 : 0;
}
unsigned long long flw_live_context_id_here(void);

/* ---- enter, leave */

/* Enter the record that serves a context, or (NULL) the current one, creating the record if necessary,
 * and the pool if wanted. NULL: pass through. */
struct flw_live_context *flw_live_context_enter(CUcontext context, bool wants_pool);
/* Enter the context's own record, also a green context's, which has no pool. */
struct flw_live_context *flw_live_context_enter_own(CUcontext context);
/* Enter the record of the pool that contains the address, allocated or not. NULL: it is the
 * driver's. */
struct flw_live_context *flw_live_context_enter_of(CUdeviceptr address);
void flw_live_context_leave(struct flw_live_context *live);

/* ---- begin and end of contexts */

/* Add a context that the program has created or made current: epochs cover it from now on. */
void flw_live_contexts_learn(CUcontext context);
/* Call around a driver call that may end a context: with this handle, or a device's primary one
 * (context NULL). `is_over`: as the call returned; otherwise nothing has ended. */
struct flw_ending {
    struct flw_live_context *live; /* NULL: unknown */
};
struct flw_ending flw_live_contexts_begin_end(CUcontext context, CUdevice device);
void flw_live_contexts_end(struct flw_ending ending, bool is_over);
/* Between the two: a green context with that handle has ended. */
void flw_live_contexts_forget_green(CUcontext context);

/* ---- all records */

/* Release idle memory of every pool to the driver; return the bytes. */
uint64_t flw_live_contexts_trim(void);
/* Return the bytes that pools of a device hold without live blocks. */
uint64_t flw_live_contexts_idle_bytes(CUdevice device);

struct flw_live_context_counts {
    _Atomic uint64_t bypasses[FLW_BYPASS_COUNT]; /* successful calls, in a process with pools */
    _Atomic uint64_t foreign_frees;              /* pointers passed to the driver */
    _Atomic uint64_t double_frees;               /* refused: freed already, or inside a block */
    _Atomic uint64_t retries, retries_served;    /* of allocating calls that ran out of memory */
    _Atomic uint64_t contexts_ended;
};
extern struct flw_live_context_counts flw_live_context_counts;
static inline void flw_live_context_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Called with each new pool, inside the allocation that created it; NULL: none. Set before main. */
extern void (*flw_live_contexts_on_pool)(fallow_pool *pool, CUdevice device);
/* Called with each pool of an ended context, one at a time, before the pool is destroyed. */
extern void (*flw_live_contexts_on_end)(struct flw_pool *pool);

void flw_live_contexts_child(void); /* of a fork */

#endif
