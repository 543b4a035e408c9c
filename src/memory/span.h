/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two descriptors of device memory, out of band: the *slot* (one block that can be
 * allocated) and the *span* (a range of units: a run, or a slab that serves one class).
 *
 * A free accepts any 64-bit value and therefore reads tables that are always mapped and typed:
 *
 *   pointer -- mask --> offset -- page map --> span -- multiply --> slot: is its word "pointer,
 * live"?
 *
 * A wild pointer leads to some span and some slot with a different word. One compare refuses
 * double, interior, foreign and misaligned frees. This requires:
 *
 * INVARIANTS
 *   1. Span and slot memory is never unmapped and never changes kind: a slab header and its slots
 * remain a pair for one class and size; a run header keeps its one slot, as does a run never used.
 *   2. The first byte of each slab block leads to its slab, and that of a live run to the run
 * (page_map.h). Other addresses may lead to a run that no longer exists, never to such a slab.
 *   3. slot->word is address | state; a slot's address never changes while its span keeps its base.
 *   4. Slots past the last one used of a span have word 0. */
#ifndef FLW_MEMORY_SPAN_H
#define FLW_MEMORY_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/size_class.h"

/* In the low byte of slot->word; blocks are 256 B aligned. A hit compares the whole word with
 * "pointer + LIVE" for pointers of any value, so LIVE is the largest state: a pointer that matches
 * the word of a block in another state is below that block and leads to another slot, also if the
 * map leads to a run that begins above. */
enum flw_slot_state {
    FLW_SLOT_FREE = 0,
    FLW_SLOT_LIVE_USED = 1,     /* live with announced uses on other streams: freed by the slow
                                path */
    FLW_SLOT_LIVE_SPECIAL = 2,  /* live with a tag, an export or a check: freed by the slow
                                    path */
    FLW_SLOT_LIVE_CAPTURED = 3, /* allocated by a capture */
    FLW_SLOT_HELD = 4,          /* freed, not yet reusable: pending, parked or quarantined */
    FLW_SLOT_LIVE = 5
};
#define FLW_SLOT_STATE_MASK 0xffull

/* Synchronization: word by compare-and-swap from live states, plainly from free ones (by its only
 * holder); `allocation` by the holder. Lookups of any pointer read both, so all writes are atomic. */
struct flw_slot {
    uint64_t word;
    /* requested bytes | number of the allocating stream (heap/state/stream_ids.h) << 48 */
    uint64_t allocation;
};

/* FLW_REQUEST_MAX fits below. */
#define FLW_STREAM_NUMBER_SHIFT 48
#define FLW_STREAM_NUMBER_COUNT (1u << (64 - FLW_STREAM_NUMBER_SHIFT))

static inline uint64_t flw_allocation_bytes(uint64_t allocation)
{
    return allocation & ((1ull << FLW_STREAM_NUMBER_SHIFT) - 1);
}

/* A point: blocks freed before `seq` of an order domain was taken. Domain 0 = none. One word:
 * enough for a fence per microsecond for two years. */
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
    FLW_RUN_FREE,      /* mapped, in the index of the owner (a domain, or FLW_UNOWNED) */
    FLW_RUN_DEDICATED, /* the same, filling one handle, in the owner's index of such runs;
                           never joined */
    FLW_RUN_UNMAPPED,  /* address space only */
    FLW_RUN_DEFERRED,  /* free, but points of several domains are not complete */
    FLW_RUN_BUSY,      /* a growth or a move uses the run without the lock */
    FLW_RUN_RESERVED   /* address space only, reserved for growth of the preceding block */
};

/* Owner of free memory with completed work. Real domains count from 1. */
#define FLW_UNOWNED 0u

struct flw_slab_part {
    struct flw_span *run;                     /* the run that provides its units */
    struct flw_span *empty_next, *empty_prev; /* while every slot is free */
    uint32_t domain;                          /* domain that created and carves the slab */
    uint32_t slot_count;
    uint32_t carved_count;  /* slots used since the slab was created */
    uint32_t free_count;    /* slots in batches or uncarved; the others are allocated or cached */
    uint16_t point_count;   /* joined points of all freed blocks */
    uint16_t capture;       /* owning capture domain; 0 = none */
    bool points_overflowed; /* more than FLW_POINTS_MAX domains: query all */
    uint8_t class_index;
    uint8_t step_log2; /* units = smallest << step */
    uint32_t owner;    /* scratch: owner of all free slots, while empty slabs are examined */
    struct flw_point points[FLW_POINTS_MAX];
};

struct flw_deferred;

struct flw_run_part {
    struct flw_span *index_next,
        *index_prev; /* in the owner's index (FREE), in the pool's list (others) */
    struct flw_span *age_next, *age_prev; /* in an index: oldest point first */
    struct flw_span *left, *right;        /* neighbours by address; NULL at the edge of their
                                              range */
    struct flw_span *slab;                /* the slab inside, or NULL */
    struct flw_deferred *deferred;        /* DEFERRED: the points to wait for */
    uint64_t seq; /* FREE, WHOLE of a domain: number of the covering fence */
    uint32_t begin_unit, unit_count;
    uint32_t owner;    /* FREE, WHOLE: domain or FLW_UNOWNED; LIVE in a capture: its domain */
    uint8_t state;     /* enum flw_run_state */
    bool is_dedicated; /* fills a handle or segment; never cut */
    uint16_t bin;      /* FREE, WHOLE, UNMAPPED: its bin in the index */
};

/* Synchronization: lookups of any pointer read bin and kind, so writes are atomic. (magic, base
 * and slots are read too, hidden from ThreadSanitizer: page_map.h.) */
struct flw_span {
    /* A free reads these: one line. */
    uint64_t magic; /* 2^64 / slot size + 1; 2 for a run: 0 from the begin on, 1 below */
    uint64_t base;  /* masked offset of the first byte */
    uint64_t slots; /* byte offset of the first slot in the slot arena */
    uint32_t bin;   /* byte offset of the bin in a thread cache; runs: the bin without blocks */
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
