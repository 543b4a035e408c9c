/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the debug checks keep, shared by their files alone: a guard a block
 * (guard.c), those in quarantine (quarantine.c), copies on their way to be compared
 * (ring.c). Does not: know when a block is allocated or freed (debug.c).
 */
#ifndef FLW_POOL_DEBUG_GUARD_H
#define FLW_POOL_DEBUG_GUARD_H

#include "base/lock.h"
#include "driver/driver.h"
#include "pool/state/extension.h"

/* One alignment unit: what is written and compared on either side. */
#define FLW_ZONE_BYTES    512u
#define FLW_ZONE_BYTE     0xFAu
#define FLW_FREED_PATTERN 0xDEADDEADu
#define FLW_DEBUG_BUCKETS 4096u

struct flw_domain;

/* A live block, or one in quarantine. */
struct flw_guard {
    struct flw_guard *next;
    uint64_t user, raw, size_bytes;
    uint64_t stream_id;
    uint32_t domain; /* allocated on */
    uint32_t tag;
    fallow_stream freed_on; /* in quarantine */
    uint64_t freed_on_id;   /* its handle may be another stream's later */
    bool is_filled;         /* zones and poison are in place */
    bool is_captured;
};

/* A thread with a block that is out of quarantine and not back in the heap yet. */
struct flw_leaver {
    struct flw_leaver *next;
    fallow_stream stream;
};

/* A copy on its way. Front and back half hold FLW_ZONE_BYTES each. */
struct flw_check {
    CUevent event;
    struct flw_guard guard;
    bool is_freed_poison; /* else zones */
    bool is_given;        /* the event is recorded */
};

/* Synchronization: `lock`, but ring entries between being taken and being given: their taker. */
struct flw_debug {
    struct flw_lock lock; /* FLW_RANK_USES */
    uint32_t checks;
    struct flw_guard *live[FLW_DEBUG_BUCKETS];
    struct flw_guard *unused;
    struct flw_guard *quarantine, **quarantine_end;
    struct flw_leaver *leavers;
    uint64_t quarantine_count, quarantine_bytes, quarantine_most_bytes;
    struct flw_check *ring; /* NULL: leaks only */
    unsigned char *ring_bytes;
    uint64_t ring_head, ring_tail;
    bool is_polling;
    uint64_t fill_count;
    uint64_t damaged_count, left_out_count;
};

/* ---- guard.c */

/* lock. The guard of a live pointer of the caller's; NULL: there is none. */
struct flw_guard *flw_guard_find(struct flw_debug *debug, uint64_t user);
/* lock. Taken out of the live ones: of two threads that free one pointer, one gets it. */
struct flw_guard *flw_guard_take(struct flw_debug *debug, uint64_t user);
/* lock. It is live from now on. */
void flw_guard_insert(struct flw_debug *debug, struct flw_guard *guard);
/* One that is in no list; NULL: host memory. And back. */
struct flw_guard *flw_guard_new(struct flw_debug *debug);
void flw_guard_drop(struct flw_debug *debug, struct flw_guard *guard);
/* The hooks of extension.h that only look. */
bool flw_guard_view(struct flw_pool *pool, uint64_t user, struct flw_view *out_view);
bool flw_guard_view_raw(struct flw_pool *pool, uint64_t raw, struct flw_view *out_view);
void flw_guard_each(struct flw_pool *pool,
                    void (*visit)(void *context, const struct flw_live_block *block),
                    void *context);
void flw_guard_read_stats(struct flw_pool *pool, fallow_stats *stats);
/* A check was not to be had. */
void flw_debug_leave_out(struct flw_debug *debug);
/* The pool ends. The largest blocks that were never freed, to the log; the memory of all guards. */
void flw_guard_list_leaks(struct flw_pool *pool);
void flw_guard_free_all(struct flw_debug *debug);

/* ---- quarantine.c */

/* Driver calls. A filled block that no caller holds stays out of use for a while; as many leave as
 * there are too many. */
void flw_debug_quarantine(struct flw_pool *pool, struct flw_guard *guard, fallow_stream stream,
                          const struct flw_domain *domain);
/* Out of quarantine: all; or what was freed on one stream, which no thread names when this returns. True if
 * there was any. Driver calls. */
bool flw_debug_release(struct flw_pool *pool);
void flw_debug_release_stream(struct flw_pool *pool, fallow_stream stream);

/* ---- ring.c */

/* Compare the copies that have arrived. Never waits. Driver calls. */
void flw_debug_poll(struct flw_pool *pool);

/* Copy both ends of a block (its zones, or of a freed one its first and last bytes) on the stream
 * and let an event tell when they have arrived. Ring full, or refused: left out and counted. Driver
 * calls, inside a section. */
void flw_debug_give_check(struct flw_pool *pool, const struct flw_guard *guard,
                          bool is_freed_poison, fallow_stream stream);

/* Driver calls, inside a section. What was made before a failure flw_debug_drop_ring releases. */
fallow_status flw_debug_make_ring(struct flw_pool *pool, struct flw_debug *debug);
void flw_debug_drop_ring(struct flw_pool *pool, struct flw_debug *debug, bool is_lost);

#endif
