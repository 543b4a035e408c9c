/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of the debug checks, for their files alone: a guard per block (guard.c), blocks
 * in quarantine (quarantine.c), copies to be compared (ring.c). Does not: detect when a block is
 * allocated or freed (debug.c). */
#ifndef FLW_POOL_DEBUG_GUARD_H
#define FLW_POOL_DEBUG_GUARD_H

#include "base/lock.h"
#include "driver/driver.h"
#include "pool/state/extension.h"

/* One alignment unit: written and compared on either side. */
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
    uint32_t domain; /* of the allocation */
    uint32_t tag;
    fallow_stream freed_on; /* in quarantine */
    uint64_t freed_on_id;   /* the handle may belong to another stream later */
    bool is_filled;         /* zones and poison are written */
    bool is_captured;
};

/* A thread with a block that has left quarantine and is not in the heap yet. */
struct flw_leaver {
    struct flw_leaver *next;
    fallow_stream stream;
};

/* A copy under way. Front and back half hold FLW_ZONE_BYTES each. */
struct flw_check {
    CUevent event;
    struct flw_guard guard;
    bool is_freed_poison; /* otherwise zones */
    bool is_given;        /* the event is recorded */
};

/* Synchronization: `lock`; a ring entry belongs to the taker from being taken until the event is
 * recorded. */
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

/* Return the guard of a caller's live pointer; NULL: none. Lock held. */
struct flw_guard *flw_guard_find(struct flw_debug *debug, uint64_t user);
/* Remove it from the live guards: of two threads that free one pointer, one gets it. Lock held. */
struct flw_guard *flw_guard_take(struct flw_debug *debug, uint64_t user);
/* Add it to the live guards. Lock held. */
void flw_guard_insert(struct flw_debug *debug, struct flw_guard *guard);
/* Create a guard in no list, NULL: no host memory; and free one. */
struct flw_guard *flw_guard_new(struct flw_debug *debug);
void flw_guard_drop(struct flw_debug *debug, struct flw_guard *guard);
/* The hooks of extension.h that only read. */
bool flw_guard_view(struct flw_pool *pool, uint64_t user, struct flw_view *out_view);
bool flw_guard_view_raw(struct flw_pool *pool, uint64_t raw, struct flw_view *out_view);
void flw_guard_each(struct flw_pool *pool,
                    void (*visit)(void *context, const struct flw_live_block *block),
                    void *context);
void flw_guard_read_stats(struct flw_pool *pool, fallow_stats *stats);
/* Count a check left out. */
void flw_debug_leave_out(struct flw_debug *debug);
/* At the pool's end: log the largest live blocks, and free all guards. */
void flw_guard_list_leaks(struct flw_pool *pool);
void flw_guard_free_all(struct flw_debug *debug);

/* ---- quarantine.c */

/* Hold a filled block of no caller back; release as many as are too many. Makes driver calls. */
void flw_debug_quarantine(struct flw_pool *pool, struct flw_guard *guard, fallow_stream stream,
                          const struct flw_domain *domain);
/* Release all blocks from quarantine, or those freed on one stream, which no thread names after
 * the return. True if there were any. Makes driver calls. */
bool flw_debug_release(struct flw_pool *pool);
void flw_debug_release_stream(struct flw_pool *pool, fallow_stream stream);

/* ---- ring.c */

/* Compare copies that are complete. Never waits. Makes driver calls. */
void flw_debug_poll(struct flw_pool *pool);

/* Copy both ends of a block (the zones, or the first and last bytes of a freed one) on the stream
 * and record an event. If the ring is full or the driver refuses, the check is left out and
 * counted. Makes driver calls in a section. */
void flw_debug_give_check(struct flw_pool *pool, const struct flw_guard *guard,
                          bool is_freed_poison, fallow_stream stream);

/* Create the ring; after a failure flw_debug_drop_ring releases the parts. Makes driver calls in a
 * section. */
fallow_status flw_debug_make_ring(struct flw_pool *pool, struct flw_debug *debug);
void flw_debug_drop_ring(struct flw_pool *pool, struct flw_debug *debug, bool is_lost);

#endif
