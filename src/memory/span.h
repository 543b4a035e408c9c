/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two descriptors that stand, out of band, for device memory: the *slot* (one block that
 * can be allocated) and the *span* (a stretch of units: a run, or a slab that serves one class).
 *
 * A free must answer for any 64-bit value. So it walks tables that are always mapped and typed:
 *
 *   pointer -- mask --> offset -- page map --> span -- multiply --> slot: is its word "pointer,
 * live"?
 *
 * A wild pointer lands on some span and some slot, whose word then differs. One compare refuses
 * double, interior, foreign and misaligned frees. To keep that sound:
 *
 * INVARIANTS
 *   1. Span and slot memory is never unmapped and never changes kind: a slab header and its slots
 * stay a pair for one class and size forever; a run header keeps its one slot, and one that is never used.
 *   2. Where a block of a slab begins the map leads to the slab, where a live run begins to that
 * (page_map.h). Elsewhere it may lead to a run that is not there any more, never to such a slab.
 *   3. slot->word is address | state; a slot's address never changes while its span keeps its base.
 *   4. Slots past the last one used of a span have word 0.
 */
#ifndef FLW_MEMORY_SPAN_H
#define FLW_MEMORY_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/size_class.h"

/* In the low byte of slot->word; blocks are 256 B aligned. A hit compares the whole word with
 * "pointer + LIVE" for pointers of any value. So LIVE is the largest: a pointer that meets the word
 * of a block in another state lies below that block, and there it finds another slot: also where the
 * map leads to a run that begins above. */
enum flw_slot_state {
    FLW_SLOT_FREE = 0,
    FLW_SLOT_LIVE_USED =
        1, /* live, and other streams have announced uses: the slow path frees it */
    FLW_SLOT_LIVE_SPECIAL = 2,  /* live with a tag, an export or a check: the slow path frees it */
    FLW_SLOT_LIVE_CAPTURED = 3, /* allocated by a capture */
    FLW_SLOT_HELD = 4,          /* freed, not yet reusable: pending, parked or quarantined */
    FLW_SLOT_LIVE = 5
};
#define FLW_SLOT_STATE_MASK 0xffull

/* Synchronization: word by compare-and-swap from live states, plain from free ones (its holder
 * alone); `allocation` by the holder. Both are read by look-ups of any pointer: written
 * atomically. */
struct flw_slot {
    uint64_t word;
    /* requested bytes | number of the stream that allocated it (heap/state/stream_ids.h) << 48 */
    uint64_t allocation;
};

/* FLW_REQUEST_MAX fits below. */
#define FLW_STREAM_NUMBER_SHIFT 48
#define FLW_STREAM_NUMBER_COUNT (1u << (64 - FLW_STREAM_NUMBER_SHIFT))

static inline uint64_t flw_allocation_bytes(uint64_t allocation)
{
    return allocation & ((1ull << FLW_STREAM_NUMBER_SHIFT) - 1);
}

/* A point: what was freed before `seq` of an order domain was taken. Domain 0 = none. One word:
 * a fence a microsecond for two years fits. */
#define FLW_DOMAIN_LOG2 18
struct flw_point {
    uint64_t domain : FLW_DOMAIN_LOG2;
    uint64_t seq : 64 - FLW_DOMAIN_LOG2;
};
#define FLW_DOMAIN_COUNT (1u << FLW_DOMAIN_LOG2)
#define FLW_POINTS_MAX   4

enum flw_span_kind {
    FLW_SPAN_NONE,
    FLW_SPAN_RUN,
    FLW_SPAN_SLAB
};

enum flw_run_state {
    FLW_RUN_LIVE,      /* allocated, cached by a thread, or serving a slab */
    FLW_RUN_FREE,      /* mapped, in the index of its owner (a domain, or FLW_UNOWNED) */
    FLW_RUN_DEDICATED, /* the same, all of one handle, in its owner's index of those: joins nothing */
    FLW_RUN_UNMAPPED, /* address space only */
    FLW_RUN_DEFERRED, /* free, but points of several domains are not complete */
    FLW_RUN_BUSY,     /* a growth or a move uses the run without the lock */
    FLW_RUN_RESERVED  /* address space only, set aside for growth of the block before */
};

/* Owner of free memory whose work is complete. Real domains count from 1. */
#define FLW_UNOWNED 0u

struct flw_slab_part {
    struct flw_span *run;                     /* the run whose units it takes */
    struct flw_span *empty_next, *empty_prev; /* while every slot is free */
    uint32_t domain;                          /* that made it and carves it */
    uint32_t slot_count;
    uint32_t carved_count;  /* slots that were ever handed out since the slab was made */
    uint32_t free_count;    /* slots in batches or uncarved; the rest is allocated or cached */
    uint16_t point_count;   /* join of the points of everything that left it */
    uint16_t capture;       /* capture domain that owns it; 0 = none */
    bool points_overflowed; /* more than FLW_POINTS_MAX domains: all are asked */
    uint8_t class_index;
    uint8_t step_log2; /* units = smallest << step */
    uint32_t owner;    /* scratch: whose free slots all of it is, while empty slabs are looked at */
    struct flw_point points[FLW_POINTS_MAX];
};

struct flw_deferred;

struct flw_run_part {
    struct flw_span *index_next,
        *index_prev; /* in its owner's index (FREE), in the pool's list (others) */
    struct flw_span *age_next, *age_prev; /* in an index: oldest point first */
    struct flw_span *left, *right;        /* neighbours by address, or the edge of their stretch */
    struct flw_span *slab;                /* the slab it serves, or NULL */
    struct flw_deferred *deferred;        /* DEFERRED: what holds it back */
    uint64_t seq; /* FREE, WHOLE of a domain: covered by its fence of this number */
    uint32_t begin_unit, unit_count;
    uint32_t owner;    /* FREE, WHOLE: domain or FLW_UNOWNED; LIVE in a capture: its domain */
    uint8_t state;     /* enum flw_run_state */
    bool is_dedicated; /* all of a handle or segment; never cut */
    uint16_t bin;      /* FREE, WHOLE, UNMAPPED: the bin of its index that it is in */
};

/* Synchronization: bin and kind are read by look-ups of any pointer: written atomically. (magic, base
 * and slots are read so too, out of ThreadSanitizer's sight: page_map.h.) */
struct flw_span {
    /* What a free reads: one line. */
    uint64_t magic; /* 2^64 / slot size + 1; 2 for a run: 0 from its begin on, 1 below */
    uint64_t base;  /* masked offset of the first byte */
    uint64_t slots; /* byte offset of its first slot in the slot arena */
    uint32_t bin;   /* byte offset of its bin in a thread cache; runs: the bin that holds nothing */
    uint8_t kind;   /* enum flw_span_kind; set once */
    uint8_t reserved[3];
    struct flw_span *next_unused;
    union {
        struct flw_slab_part slab;
        struct flw_run_part run;
    } u;
};
_Static_assert(sizeof(struct flw_span) <= 128, "two lines a span");

#endif
