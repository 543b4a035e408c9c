/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a feature is to the core of a pool: a row of functions (debug checks, recording, sharing, sleep).
 * Does not: know one of them. The core calls whatever rows a pool has, on its slow paths; it names none, and links
 * without any.
 *
 * A row is enlisted in a pool when the feature is first used there, and stays until the pool ends: its functions
 * do nothing where there is nothing for them to do. Hits consult no row. A feature that must see every call closes
 * the caches or gives them another key.
 */
#ifndef FLW_POOL_EXTENSION_H
#define FLW_POOL_EXTENSION_H

#include "base/check.h"
#include "pool/state/pool.h"
#include "record/callstack.h"
#include "record/ring.h"

struct flw_live_block;

/* What has happened to a block, or, where all is 0, to a stream or the pool. */
struct flw_event {
    uint64_t address, size_bytes;
    uint32_t tag, capture; /* ALLOC: the caller's tag, the capture it was made in; else 0 */
};

/* A live block as its caller sees it, where that is less than the pool allocated. */
struct flw_view {
    uint64_t raw;              /* where the pool's own block begins */
    uint64_t user, size_bytes; /* what the caller holds */
    uint64_t stream_id;        /* of the stream that it was allocated on */
};

/* Any function but the name's may be NULL. Without a word on locks: none is held. */
struct flw_extension {
    /* The pool is being made, and no other thread knows it; in a driver section. A feature that the config asks for
     * enlists itself. */
    fallow_status (*create)(struct flw_pool *pool);
    /* The pool's end begins: other threads may still be inside. */
    void (*stop)(struct flw_pool *pool);
    /* No thread is inside any more and all work is done; is_lost: without a driver call. */
    void (*finish)(struct flw_pool *pool, bool is_lost);
    /* The pool is abandoned: no driver call, no wait, no lock. */
    void (*orphan)(struct flw_pool *pool);
    /* In the child of a fork, for the whole process. */
    void (*forget_all)(void);

    /* Both or neither, and of one feature of a pool at most, its *front*: these stand before the ordinary pair,
     * which they may use (calls/). The front tells of its blocks itself. */
    fallow_status (*alloc)(struct flw_pool *pool, const fallow_request *request,
                           fallow_stream stream, void **out_ptr);
    fallow_status (*free)(struct flw_pool *pool, void *ptr, fallow_stream stream);
    /* A front's live block by the caller's pointer, or by the raw block's. False: there is none. */
    bool (*view)(struct flw_pool *pool, uint64_t user, struct flw_view *out_view);
    bool (*view_raw)(struct flw_pool *pool, uint64_t raw, struct flw_view *out_view);
    /* Every block that a caller holds. `visit` runs under a lock. */
    void (*each)(struct flw_pool *pool,
                 void (*visit)(void *context, const struct flw_live_block *block), void *context);

    /* It has happened: ALLOC, FREE (before the block is in anybody's reach), USE, POOL_BEGIN, POOL_END on a domain's
     * stream; EMPTY_CACHE, without a domain. */
    void (*happened)(struct flw_pool *pool, enum flw_trace_op op, const struct flw_domain *domain,
                     const struct flw_event *event);
    /* An allocation is asked for, of a pool that sees stacks: outside of the gate, nothing is decided and no lock
     * held. What it finds is for this call (flw_callstack_seen). True: the call is to end the
     * look. */
    bool (*alloc_asked)(struct flw_pool *pool);
    /* An allocation fails for want of memory. */
    void (*failed)(struct flw_pool *pool, const struct flw_domain *domain,
                   const fallow_oom_report *report);
    /* pool->lock. A thread's cache is new. False: no host memory. */
    bool (*cache_made)(struct flw_pool *pool, struct flw_tcache *cache,
                       const struct flw_domain *domain);

    /* Memory that the feature keeps back goes to the heap: all; or, of a stream that is being retired, what names it,
     * by any thread, when this returns. True: there was some. Driver calls. */
    bool (*release)(struct flw_pool *pool);
    void (*stream_ends)(struct flw_pool *pool, fallow_stream stream);
    /* May work that the pool was never told of use memory of the feature's? */
    bool (*is_used_untold)(struct flw_pool *pool);
    /* The gate is held. The feature's memory outside of the heap, a stretch after the other; where `set` fails, those
     * before it are set back. */
    CUresult (*each_stretch)(struct flw_pool *pool, flw_heap_stretch_function set,
                             flw_heap_stretch_function set_back, const void *context);
    /* A block that others may map has been freed. Never waits. Driver calls, not inside the gate. */
    void (*exported_freed)(struct flw_pool *pool);
    /* The pool is polled: what is complete by now, and what a failure has left, for which it may wait. Driver
     * calls, not inside the gate. */
    void (*poll)(struct flw_pool *pool);
    void (*read_stats)(struct flw_pool *pool, fallow_stats *stats);
};

/* Those that this build has, NULL behind the last (features.c). */
extern const struct flw_extension *const flw_features[];

/* From now on the row is the pool's; again: nothing. Lock-free. */
static inline void flw_pool_enlist(struct flw_pool *pool, const struct flw_extension *row)
{
    for (unsigned i = 0; i < FLW_EXTENSIONS_MOST; i++) {
        const struct flw_extension *there = NULL;
        if (__atomic_compare_exchange_n(&pool->extensions[i], &there, row, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            there == row) {
            return;
        }
    }
    FLW_ASSERT(false); /* more features than places */
}

/* The statement after it is run for each row of the pool that has the function. */
#define FLW_EACH_EXTENSION(pool, row, function)                                   \
    for (const struct flw_extension *const *row##_at = (pool)->extensions, *row;  \
         (row = __atomic_load_n(row##_at, __ATOMIC_ACQUIRE)) != NULL; row##_at++) \
        if (row->function != NULL)

/* Only create enlists one, before anything else can: it is the first. NULL: none. */
static inline const struct flw_extension *flw_pool_front(const struct flw_pool *pool)
{
    const struct flw_extension *first = __atomic_load_n(&pool->extensions[0], __ATOMIC_ACQUIRE);
    return first != NULL && first->alloc != NULL ? first : NULL;
}

/* No feature is in use. */
static inline bool flw_pool_is_plain(const struct flw_pool *pool)
{
    return __atomic_load_n(&pool->extensions[0], __ATOMIC_ACQUIRE) == NULL;
}

/* Before an allocation. True: this call has looked, and flw_pool_end_look follows. */
static inline bool flw_pool_look(struct flw_pool *pool)
{
    bool has_looked = false;
    if (FLW_UNLIKELY(atomic_load_explicit(&pool->sees_stacks, memory_order_relaxed))) {
        FLW_EACH_EXTENSION (pool, row, alloc_asked) {
            has_looked |= row->alloc_asked(pool);
        }
    }
    return has_looked;
}

static inline void flw_pool_end_look(bool has_looked)
{
    if (FLW_UNLIKELY(has_looked)) {
        flw_callstack_end_look();
    }
}

static inline void flw_pool_tell(struct flw_pool *pool, enum flw_trace_op op,
                                 const struct flw_domain *domain, struct flw_event event)
{
    FLW_EACH_EXTENSION (pool, row, happened) {
        row->happened(pool, op, domain, &event);
    }
}

#endif
