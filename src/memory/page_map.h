/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables from address to span to slot, and the memory of spans and slots.
 * Does not: know who owns a span.
 *
 * A *name* is the byte offset of a span in the span arena; 0 is a span without slots that refuses
 * everything. Each unit has one. Where a unit's is 0, that of its *cell* of eight units counts: blocks of
 * a cell or more begin in cells of their own, so one name a cell finds them, and 10^6 of 1 MiB take
 * 8 MB, not 64. Where memory can be mapped freely the tables cover one reserved range; where it comes in
 * driver allocations they cover the 47-bit address space (9 GiB of address space, pages appear as they
 * are used) and cells are left alone, since another's memory may be in them. If the driver reserves less than
 * requested, so that several ranges may be needed, the tables cover the address space too, with cells.
 *
 * The tables of units and cells are as large as what they cover. Those of spans and slots are as large as
 * the number of blocks that a pool may come to have; `shrink` halves that so many times, down to a floor.
 *
 * INVARIANT  of a cell that a name may be wanted of, only one span can have the name: a slab of blocks of
 * a cell or more has every cell that it begins in or covers; a live run of a cell or more that in which
 * it begins. Two of them cannot begin in one cell, and none begins in one that another covers.
 *
 * Synchronization: written under the heap lock; read by anyone (invariants in span.h).
 */
#ifndef FLW_MEMORY_PAGE_MAP_H
#define FLW_MEMORY_PAGE_MAP_H

#include "base/bits.h"
#include "base/meta.h"
#include "memory/span.h"

#define FLW_CELL_LOG2           19
#define FLW_CELL_BYTES          (1ull << FLW_CELL_LOG2)
#define FLW_CELL_UNITS          (1u << (FLW_CELL_LOG2 - FLW_UNIT_LOG2))
#define FLW_ADDRESS_SPACE_BYTES (1ull << 47)
#define FLW_CELL_COUNT          (FLW_ADDRESS_SPACE_BYTES >> FLW_CELL_LOG2)

struct flw_page_map {
    uint64_t
        base; /* of the covered addresses, a multiple of their size; 0: the whole address space */
    uint64_t mask;   /* that size - 1 */
    uint32_t *units; /* unit -> name; the cells' names lie at a fixed distance before them */
    bool has_cells;
    unsigned char *spans;
    unsigned char *slots;
    uint64_t slots_mask; /* keeps a wild index inside the arena */
    uint32_t no_bin;     /* bin of a span that no thread cache holds anything of */

    struct flw_meta cell_meta, unit_meta, span_meta, slot_meta;
    struct flw_meta page_meta; /* a bit for each page of `units` that was ever written */
    uint64_t written_pages;
    struct flw_span *unused_runs;
    struct flw_span *unused_slabs[FLW_CLASS_COUNT][FLW_SLAB_STEPS];
    uint8_t slab_units[FLW_CLASS_COUNT]; /* flw_class_slab_units, which is long: at most 64 */
};

/* Make tables for [base, base + bytes): bytes is a power of two and base a multiple of bytes. has_cells: no cell
 * contains memory of the pool and of others. no_bin: the bin of runs and units without a span. Returns false if host
 * memory or addresses run out. */
bool flw_page_map_init(struct flw_page_map *map, uint64_t base, uint64_t bytes, bool has_cells,
                       uint32_t no_bin, unsigned shrink);
/* The address space that such tables take: what cannot shrink, what can. */
uint64_t flw_page_map_name_bytes(bool has_cells, uint64_t bytes);
uint64_t flw_page_map_block_bytes(unsigned shrink);
/* How many blocks have a slot in such tables. */
uint64_t flw_page_map_slot_count(unsigned shrink);
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
FLW_SNAPSHOT_INLINE uint32_t flw_page_map_name_in(const uint32_t *units, uint64_t offset)
{
    uint32_t name = units[offset >> FLW_UNIT_LOG2];
    if (FLW_UNLIKELY(name == 0)) {
        name = (units - FLW_CELL_COUNT)[offset >> FLW_CELL_LOG2];
    }
    return name;
}

FLW_SNAPSHOT_INLINE struct flw_span *flw_page_map_span_at(const struct flw_page_map *map,
                                                          uint64_t offset)
{
    return (struct flw_span *)(void *)(map->spans + flw_page_map_name_in(map->units, offset));
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

static inline uint32_t flw_page_map_name(const struct flw_page_map *map,
                                         const struct flw_span *span)
{
    return (uint32_t)((const unsigned char *)span - map->spans);
}

static inline uint32_t *flw_page_map_cells(const struct flw_page_map *map)
{
    return map->units - FLW_CELL_COUNT;
}

/* Units [begin, begin + count) lead to the span; NULL: to nothing. */
void flw_page_map_set_units(struct flw_page_map *map, uint64_t begin, uint32_t count,
                            const struct flw_span *span);

/* The beginning of a live run leads to it. (One that is less than a cell serves a slab, where there are
 * cells.) */
static inline void flw_page_map_set_run(struct flw_page_map *map, const struct flw_span *run)
{
    uint64_t begin = run->u.run.begin_unit;
    uint32_t name = flw_page_map_name(map, run);
    if (FLW_LIKELY(map->has_cells)) {
        if (run->u.run.unit_count >= FLW_CELL_UNITS) {
            flw_page_map_cells(map)[begin / FLW_CELL_UNITS] = name;
        }
    } else if (map->units[begin] != name) {
        flw_page_map_set_units(map, begin, 1, run);
    }
}

/* All of a slab's run leads to the slab; or, when it is dissolved, to no slab any more. */
void flw_page_map_set_slab(struct flw_page_map *map, const struct flw_span *slab);
void flw_page_map_clear_slab(struct flw_page_map *map, const struct flw_span *slab);

/* Do cells find its blocks? */
static inline bool flw_page_map_has_cells(const struct flw_page_map *map,
                                          const struct flw_span *slab)
{
    return map->has_cells && flw_class_bytes(slab->u.slab.class_index) >= FLW_CELL_BYTES;
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

static inline void flw_slot_set_allocation(struct flw_slot *slot, uint64_t allocation)
{
    __atomic_store_n(&slot->allocation, allocation, __ATOMIC_RELAXED);
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

/* Host memory of the tables, in bytes: pages in use, not address space. The cells of so many units may have names. */
uint64_t flw_page_map_host_bytes(const struct flw_page_map *map, uint64_t unit_count);

#endif
