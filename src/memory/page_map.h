/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables from address to span to slot, and the memory of spans and slots.
 * Does not: record the owner of a span.
 *
 * A *name* is the byte offset of a span in the span arena; 0 is a span without slots that refuses
 * everything. Each unit has a name. If a unit's name is 0, the name of its *cell* of eight units
 * counts: blocks of a cell or more begin in different cells, so one name per cell is enough, and
 * 10^6 blocks of 1 MiB take 8 MB instead of 64. If memory can be remapped, the tables cover one
 * reserved range. With segments the tables cover the 47-bit address space (9 GiB of addresses;
 * pages appear when used) and have no cells, since a cell may contain memory of others. If the
 * driver reserves less than requested, so that several ranges may be needed, the tables also cover
 * the address space, with cells.
 *
 * The tables of units and cells are as large as the covered range. The tables of spans and slots
 * are as large as the number of blocks that a pool may have; each step of `shrink` halves both,
 * down to a floor.
 *
 * INVARIANT  only one span can need the name of a cell: a slab of blocks of a cell or more needs each cell from its first to its last byte; a live run of a cell or more needs the cell of its first byte. No cell is the first of two of these, and none begins in a cell that another covers.
 *
 * Synchronization: written under the heap lock; read by any thread (invariants in span.h). */
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
    uint64_t base;   /* first covered address, a multiple of the covered size; 0: the whole address
                  space */
    uint64_t mask;   /* covered size - 1 */
    uint32_t *units; /* names by unit; the cells' names precede at a fixed distance */
    bool has_cells;
    unsigned char *spans;
    unsigned char *slots;
    uint64_t slots_mask; /* keeps a wild index inside the arena */
    uint32_t no_bin;     /* bin of a span without blocks in any thread cache */

    struct flw_meta cell_meta, unit_meta, span_meta, slot_meta;
    struct flw_meta page_meta; /* a bit for each page of `units` that was ever written */
    uint64_t written_pages;
    struct flw_span *unused_runs;
    struct flw_span *unused_slabs[FLW_CLASS_COUNT][FLW_SLAB_STEPS];
    uint8_t slab_units[FLW_CLASS_COUNT]; /* flw_class_slab_units, cached because the
                                             computation is slow; at most 64 */
};

/* Create tables for [base, base + bytes): bytes is a power of two and base a multiple of bytes.
 * has_cells: no cell contains memory of the pool and of others. no_bin: the bin of runs and of
 * units without a span. Returns false if host memory or addresses run out. */
bool flw_page_map_init(struct flw_page_map *map, uint64_t base, uint64_t bytes, bool has_cells,
                       uint32_t no_bin, unsigned shrink);
/* Return the address space of such tables: the part that cannot shrink, and the part that can. */
uint64_t flw_page_map_name_bytes(bool has_cells, uint64_t bytes);
uint64_t flw_page_map_block_bytes(unsigned shrink);
/* Return the number of blocks that such tables have slots for. */
uint64_t flw_page_map_slot_count(unsigned shrink);
void flw_page_map_finish(struct flw_page_map *map);

/* Return a run header with a slot and empty run fields; NULL if host memory runs out. */
struct flw_span *flw_page_map_new_run(struct flw_page_map *map);
/* The same with the run fields of another. */
struct flw_span *flw_page_map_copy_run(struct flw_page_map *map, const struct flw_span *run);
struct flw_span *flw_page_map_extend_runs(struct flw_page_map *map);

/* The same with the run fields of the header's last use. */
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
    /* Units still have this name, which must not match the run around. */
    run->u.run.state = FLW_RUN_BUSY;
    run->u.run.begin_unit = 0;
    run->u.run.unit_count = 0;
    run->next_unused = map->unused_runs;
    map->unused_runs = run;
}

/* Return a slab header with slots for a class. bin: see flw_span. */
struct flw_span *flw_page_map_new_slab(struct flw_page_map *map, unsigned class_index,
                                       unsigned step_log2);
void flw_page_map_drop_slab(struct flw_page_map *map, struct flw_span *slab);

static inline uint64_t flw_page_map_offset(const struct flw_page_map *map, uint64_t address)
{
    return address & map->mask;
}

/* Lookups accept any pointer, also wild ones, while other threads recycle the spans on the way. No
 * value read on the way counts until a slot's word, read last and atomically, is the pointer
 * itself and a live state. */
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

/* Return the slot that would hold `offset` if `offset` is a slot's address; always readable, never
 * NULL. */
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

/* Make units [begin, begin + count) lead to the span; to none if NULL. */
void flw_page_map_set_units(struct flw_page_map *map, uint64_t begin, uint32_t count,
                            const struct flw_span *span);

/* Make a live run's first unit lead to the run. (With cells, a run smaller than a cell serves a
 * slab.) */
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

/* Make all units of a slab's run lead to the slab, or to no slab when it is dissolved. */
void flw_page_map_set_slab(struct flw_page_map *map, const struct flw_span *slab);
void flw_page_map_clear_slab(struct flw_page_map *map, const struct flw_span *slab);

/* True if cells find the slab's blocks. */
static inline bool flw_page_map_has_cells(const struct flw_page_map *map,
                                          const struct flw_span *slab)
{
    return map->has_cells && flw_class_bytes(slab->u.slab.class_index) >= FLW_CELL_BYTES;
}

/* Atomic, since lookups of wild pointers may read the word at any time. */
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

/* Return the span of a live or free slot. */
static inline struct flw_span *flw_slot_span(const struct flw_page_map *map,
                                             const struct flw_slot *slot)
{
    return flw_page_map_span_at(map, flw_page_map_offset(map, flw_slot_address(slot)));
}

/* Iterate over every span ever created, in any order, including unused ones (their slots are
 * free); NULL begins and ends. Requires the heap lock. */
struct flw_span *flw_page_map_next_span(const struct flw_page_map *map,
                                        const struct flw_span *span);

/* Return the host memory of the tables: used pages, not address space. unit_count: units whose
 * cells may have names. */
uint64_t flw_page_map_host_bytes(const struct flw_page_map *map, uint64_t unit_count);

#endif
