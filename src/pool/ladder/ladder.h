/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two ladders that an allocation climbs when its cache has nothing: what is tried, and in what order. A
 * stage satisfies the need or leaves everything as it was; each is counted and timed, by its place,
 * for the out-of-memory report.
 */
#ifndef FLW_POOL_LADDER_LADDER_H
#define FLW_POOL_LADDER_LADDER_H

#include "pool/state/pool.h"

/* The ladder of a pool in the order of streams. */
enum flw_stage {
    FLW_STAGE_OWN,        /* own stream's heap and what is unowned */
    FLW_STAGE_COMPLETE,   /* blocks whose fence has completed */
    FLW_STAGE_OWN_CACHE,  /* the thread's own caches, empty slabs */
    FLW_STAGE_CACHES,     /* other threads' caches */
    FLW_STAGE_GROW,       /* idle handles, then new ones up to the soft target */
    FLW_STAGE_STEAL,      /* another stream's, a fence already recorded */
    FLW_STAGE_FENCE,      /* another stream's, a fence recorded now */
    FLW_STAGE_REMAP_WAIT, /* wait for the device, then move handles */
    FLW_STAGE_LIMIT,      /* grow to the limit */
    FLW_STAGE_CALLBACK,   /* the user's callback, other pools of the device */
    FLW_STAGE_WAIT,       /* bounded wait for what is deferred */
    FLW_STAGE_FAIL
};

/* The ladder of a pool in context order. */
enum flw_context_stage {
    FLW_CONTEXT_READY,    /* what lies ready */
    FLW_CONTEXT_COMPLETE, /* blocks whose epoch has completed */
    FLW_CONTEXT_CLOSE,    /* an epoch over what is open, if that is worth an event */
    FLW_CONTEXT_GROW,     /* up to the bound (flw_epoch_bound) */
    FLW_CONTEXT_CACHES,   /* whatever any thread has freed, slabs that are empty */
    FLW_CONTEXT_WAIT,     /* for the oldest epoch with a fit */
    FLW_CONTEXT_EXCHANGE, /* wait for all; what does not fit makes room for what does */
    FLW_CONTEXT_LIMIT,    /* grow to the limit */
    FLW_CONTEXT_TRIM,     /* everything idle to the driver, then grow */
    FLW_CONTEXT_CALLBACK, /* the user's callback, other pools of the device */
    FLW_CONTEXT_FAIL
};

/* What is wanted: slots of a class, or a run. */
struct flw_need {
    struct flw_domain *domain;
    struct flw_tcache *cache; /* the caller's; NULL for a capture */
    unsigned class_index;     /* FLW_CLASS_COUNT: a run */
    uint32_t unit_count, align_units;
    uint64_t size_bytes; /* as asked, for the peak and the report */
    fallow_status
        asked; /* of flw_capture_check, except on the legacy stream: must be OK before a driver call */
    uint32_t flags, handle_types;
    struct flw_growable *growable; /* need whole pages at the end of this block; NULL: anywhere */
    uint64_t has_bytes;            /* bytes of the growable block so far */
    bool spares_waits; /* memory first: a looser fit rather than another wait between streams */
    bool
        is_divided; /* a large one that found no handle for itself: out of several; in segments, one with an
                          alignment above a unit */
    uint32_t want;           /* slots */
    struct flw_slot **slots; /* out */
    uint32_t count;          /* out */
    struct flw_span *run;    /* out */
    bool lacks_host; /* the last look at what lies ready came to nothing for want of host memory */
};

/* Driver calls. OK, and need has what was wanted. Each for pools of its order. */
fallow_status flw_ladder_climb(struct flw_pool *pool, struct flw_need *need);
fallow_status flw_context_climb(struct flw_pool *pool, struct flw_need *need);

/* Out of memory: remember why this need failed. (oom.c) */
void flw_oom_report_fill(struct flw_pool *pool, const struct flw_need *need);

#endif
