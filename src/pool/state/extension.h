/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface between a pool's core and the features (debug checks, recording, sharing,
 * sleep): a row of functions per feature.
 * Does not: name any of them. On slow paths the core calls all rows of a pool; it links without
 * any.
 *
 * The first use of a feature adds the row to the pool, until the pool ends; the functions do
 * nothing if they have nothing to do. Hits use no row. A feature that must see every call closes
 * the caches or gives them another key. */
#ifndef FLW_POOL_EXTENSION_H
#define FLW_POOL_EXTENSION_H

#include "base/check.h"
#include "pool/state/pool.h"
#include "record/callstack.h"
#include "record/ring.h"

struct flw_live_block;

/* An event of a block or, if all fields are 0, of a stream or the pool. */
struct flw_event {
    uint64_t address, size_bytes;
    uint32_t tag, capture; /* ALLOC: the caller's tag, the capture of the allocation; otherwise
                               0 */
};

/* A live block as the caller sees it, if that is less than the pool allocated. */
struct flw_view {
    uint64_t raw;              /* start of the pool's own block */
    uint64_t user, size_bytes; /* the caller's block */
    uint64_t stream_id;        /* of the allocating stream */
};

/* Any function except the name may be NULL. Unless stated otherwise they are called with no lock
 * held. */
struct flw_extension {
    /* Called in a driver section while the pool is created and no other thread has it. A feature
     * that the config requests adds itself. */
    fallow_status (*create)(struct flw_pool *pool);
    /* The pool's end begins: other threads may still be inside. */
    void (*stop)(struct flw_pool *pool);
    /* No thread is inside any more and all work is complete; is_lost: without a driver call. */
    void (*finish)(struct flw_pool *pool, bool is_lost);
    /* The pool is abandoned: no driver call, no wait, no lock. */
    void (*orphan)(struct flw_pool *pool);
    /* In the child of a fork, for the whole process. */
    void (*forget_all)(void);

    /* Both or neither, and of at most one feature of a pool, the *front*: these precede the
     * ordinary pair, which they may use (calls/). The front reports the blocks' events itself. */
    fallow_status (*alloc)(struct flw_pool *pool, const fallow_request *request,
                           fallow_stream stream, void **out_ptr);
    fallow_status (*free)(struct flw_pool *pool, void *ptr, fallow_stream stream);
    /* Describe a front's live block by the caller's pointer, or the raw block's. False: none. */
    bool (*view)(struct flw_pool *pool, uint64_t user, struct flw_view *out_view);
    bool (*view_raw)(struct flw_pool *pool, uint64_t raw, struct flw_view *out_view);
    /* Visit every block of callers. `visit` runs under a lock. */
    void (*each)(struct flw_pool *pool,
                 void (*visit)(void *context, const struct flw_live_block *block), void *context);

    /* An event happened: ALLOC, FREE (before any other thread can get the block), USE, POOL_BEGIN,
     * POOL_END on a domain's stream; EMPTY_CACHE, without a domain. */
    void (*happened)(struct flw_pool *pool, enum flw_trace_op op, const struct flw_domain *domain,
                     const struct flw_event *event);
    /* Record the call stack of an allocation, in a pool that records stacks: outside the gate,
     * before any decision, with no lock held. The result is for this call (flw_callstack_seen).
     * True: the call must end the look. */
    bool (*alloc_asked)(struct flw_pool *pool);
    /* An allocation fails for want of memory. */
    void (*failed)(struct flw_pool *pool, const struct flw_domain *domain,
                   const fallow_oom_report *report);
    /* A thread's cache was created. False: no host memory. pool->lock held. */
    bool (*cache_made)(struct flw_pool *pool, struct flw_tcache *cache,
                       const struct flw_domain *domain);

    /* Return memory that the feature holds back to the heap: all; or, for a stream being retired,
     * everything with the handle, by any thread, before this returns. True: there was some. Makes
     * driver calls. */
    bool (*release)(struct flw_pool *pool);
    void (*stream_ends)(struct flw_pool *pool, fallow_stream stream);
    /* True if work that was not announced to the pool may use memory of the feature. */
    bool (*is_used_untold)(struct flw_pool *pool);
    /* Visit the feature's memory outside the heap, range by range; if `set` fails, those before
     * are undone. The gate is held. */
    CUresult (*each_stretch)(struct flw_pool *pool, flw_heap_stretch_function set,
                             flw_heap_stretch_function set_back, const void *context);
    /* A block that others may map was freed. Never waits. Makes driver calls, not
     * inside the gate. */
    void (*exported_freed)(struct flw_pool *pool);
    /* The pool is polled: process completed work and the rest of earlier failures, for which this
     * may wait. Makes driver calls, not inside the gate. */
    void (*poll)(struct flw_pool *pool);
    void (*read_stats)(struct flw_pool *pool, fallow_stats *stats);
};

/* The features of this build, ended by NULL (features.c). */
extern const struct flw_extension *const flw_features[];

/* Add the row to the pool, once. Lock-free. */
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

/* Run the following statement for each row of the pool with this function. */
#define FLW_EACH_EXTENSION(pool, row, function)                                   \
    for (const struct flw_extension *const *row##_at = (pool)->extensions, *row;  \
         (row = __atomic_load_n(row##_at, __ATOMIC_ACQUIRE)) != NULL; row##_at++) \
        if (row->function != NULL)

/* Only create adds a front, before all others: the first row. NULL: none. */
static inline const struct flw_extension *flw_pool_front(const struct flw_pool *pool)
{
    const struct flw_extension *first = __atomic_load_n(&pool->extensions[0], __ATOMIC_ACQUIRE);
    return first != NULL && first->alloc != NULL ? first : NULL;
}

/* True if no feature is in use. */
static inline bool flw_pool_is_plain(const struct flw_pool *pool)
{
    return __atomic_load_n(&pool->extensions[0], __ATOMIC_ACQUIRE) == NULL;
}

/* Call before an allocation. True: this call recorded a stack, and flw_pool_end_look
 * must follow. */
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
