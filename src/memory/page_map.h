/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables from address to span to slot, and the memory of spans and slots.
 * Does not: know who owns a span.
 *
 * Four bytes a unit: the byte offset of the unit's span in the span arena; 0 is a span without
 * slots that refuses everything. Where memory can be mapped freely the tables cover one reserved
 * range; where it comes in driver allocations they cover the 47-bit address space (8 GiB of address
 * space, pages appear as they are used), so one lookup serves both.
 *
 * Synchronization: written under the heap lock; read by anyone (invariants in span.h).
 */
#ifndef FLW_MEMORY_PAGE_MAP_H
#define FLW_MEMORY_PAGE_MAP_H

#include "base/bits.h"
#include "base/meta.h"
#include "memory/span.h"

struct flw_page_map {
    uint64_t base;   /* of the range, a multiple of its size; 0: the whole address space */
    uint64_t mask;   /* range size - 1 */
    uint32_t *units; /* unit -> span offset */
    unsigned char *spans;
    unsigned char *slots;
    uint64_t slots_mask; /* keeps a wild index inside the arena */
    uint32_t no_bin;     /* bin of a span that no thread cache holds anything of */

    struct flw_meta unit_meta, span_meta, slot_meta;
    struct flw_span *unused_runs;
    struct flw_span *unused_slabs[FLW_CLASS_COUNT][FLW_SLAB_STEPS];
};

/* Tables for [base, base + bytes): bytes a power of two and base a multiple, or base 0 and bytes 2^47. no_bin: what runs
 * and units without a span have for a bin. False: host memory. */
bool flw_page_map_init(struct flw_page_map *map, uint64_t base, uint64_t bytes, uint32_t no_bin);
void flw_page_map_finish(struct flw_page_map *map);

/* A run header with its slot, its run's part blank; NULL: host memory. */
struct flw_span *flw_page_map_new_run(struct flw_page_map *map);
/* The same with the run's part of another. */
struct flw_span *flw_page_map_copy_run(struct flw_page_map *map, const struct flw_span *run);
struct flw_span *flw_page_map_extend_runs(struct flw_page_map *map);

/* The same with what its run's part held last. */
static inline struct flw_span *flw_page_map_unused_run(struct flw_page_map *map)
{
    struct flw_span *run = map->unused_runs;
    if (FLW_UNLIKELY(run == NULL)) {
        return flw_page_map_extend_runs(map);
    }
    map->unused_runs = run->next_unused;
    return run;
}

static inline void flw_page_map_drop_run(struct flw_page_map *map, struct flw_span *run)
{
    /* Units keep naming it: it must not look like the run around them. */
    run->u.run.state = FLW_RUN_BUSY;
    run->u.run.begin_unit = 0;
    run->u.run.unit_count = 0;
    run->next_unused = map->unused_runs;
    map->unused_runs = run;
}

/* A slab header for a class with its slots. bin: see flw_span. */
struct flw_span *flw_page_map_new_slab(struct flw_page_map *map, unsigned class_index,
                                       unsigned step_log2);
void flw_page_map_drop_slab(struct flw_page_map *map, struct flw_span *slab);

static inline uint64_t flw_page_map_offset(const struct flw_page_map *map, uint64_t address)
{
    return address & map->mask;
}

/* Any pointer may be asked for, a wild one too, while another thread recycles the spans that it
 * leads to. Nothing that is read on the way counts until a slot's word, read last and atomically,
 * is the pointer itself and a live state. */
FLW_SNAPSHOT_INLINE struct flw_span *flw_page_map_span_at(const struct flw_page_map *map,
                                                          uint64_t offset)
{
    return (struct flw_span *)(void *)(map->spans + map->units[offset >> FLW_UNIT_LOG2]);
}

/* The slot that would hold `offset` if it is one's address; always readable, never NULL. */
FLW_SNAPSHOT_INLINE struct flw_slot *
flw_page_map_slot_at(const struct flw_page_map *map, const struct flw_span *span, uint64_t offset)
{
    uint64_t index = (uint64_t)(((flw_u128)(offset - span->base) * span->magic) >> 64);
    uint64_t at = (span->slots + index * sizeof(struct flw_slot)) & map->slots_mask;
    return (struct flw_slot *)(void *)(map->slots + at);
}

static inline struct flw_slot *flw_span_slot(const struct flw_page_map *map,
                                             const struct flw_span *span, uint32_t index)
{
    return (struct flw_slot *)(void *)(map->slots + span->slots) + index;
}

static inline void flw_page_map_set(struct flw_page_map *map, uint64_t unit,
                                    const struct flw_span *span)
{
    map->units[unit] = (uint32_t)((const unsigned char *)span - map->spans);
}

/* Atomic, since wild pointers may be compared with it at any time. */
static inline uint64_t flw_slot_address(const struct flw_slot *slot)
{
    return __atomic_load_n(&slot->word, __ATOMIC_RELAXED) & ~FLW_SLOT_STATE_MASK;
}

static inline void flw_slot_set_word(struct flw_slot *slot, uint64_t word)
{
    __atomic_store_n(&slot->word, word, __ATOMIC_RELEASE);
}

static inline void flw_slot_set_loan(struct flw_slot *slot, uint64_t loan)
{
    __atomic_store_n(&slot->loan, loan, __ATOMIC_RELAXED);
}

/* The span of a live or free slot. */
static inline struct flw_span *flw_slot_span(const struct flw_page_map *map,
                                             const struct flw_slot *slot)
{
    return flw_page_map_span_at(map, flw_page_map_offset(map, flw_slot_address(slot)));
}

/* Every span that was ever made, in no order, those in no use included (their slots are free);
 * NULL begins and ends. Under the heap lock. */
struct flw_span *flw_page_map_next_span(const struct flw_page_map *map,
                                        const struct flw_span *span);

/* Host memory of the tables, in bytes: pages in use, not address space. */
uint64_t flw_page_map_host_bytes(const struct flw_page_map *map);

#endif
