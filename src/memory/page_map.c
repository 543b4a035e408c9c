/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/page_map.h"

#define PAGE_BYTES       4096u
#define SPAN_ARENA_BYTES (4 * FLW_GIB) /* reach of a 32-bit offset */
#define SPAN_ARENA_LEAST (16 * FLW_MIB)
#define SPAN_ALIGN       64 /* of headers and of their slots: two threads never write one line */
#define SLOT_ARENA_BYTES (64 * FLW_GIB) /* a power of two: indices are masked */
#define SLOT_ARENA_LEAST (64 * FLW_MIB)

/* ---- how large the tables are */

static uint64_t slot_bytes(unsigned shrink)
{
    return flw_max(SLOT_ARENA_BYTES >> shrink, SLOT_ARENA_LEAST);
}

static uint64_t span_bytes(unsigned shrink)
{
    return flw_max(SPAN_ARENA_BYTES >> shrink, SPAN_ARENA_LEAST) - FLW_UNIT_BYTES * 4;
}

static uint64_t unit_bytes(uint64_t bytes)
{
    return (bytes >> FLW_UNIT_LOG2) * sizeof(uint32_t);
}

/* Bytes of the cells. Without cells all read as 0, for addresses of the whole space. */
static uint64_t cell_bytes(bool has_cells, uint64_t bytes)
{
    return (has_cells ? bytes >> FLW_CELL_LOG2 : FLW_CELL_COUNT) * sizeof(uint32_t);
}

/* Bytes of the bits: one per page of the units' names. */
static uint64_t page_bytes(uint64_t bytes)
{
    return flw_div_up(unit_bytes(bytes), PAGE_BYTES * 8);
}

uint64_t flw_page_map_name_bytes(bool has_cells, uint64_t bytes)
{
    return flw_meta_rounded_bytes(unit_bytes(bytes)) +
           flw_meta_rounded_bytes(cell_bytes(has_cells, bytes)) +
           flw_meta_rounded_bytes(page_bytes(bytes));
}

uint64_t flw_page_map_block_bytes(unsigned shrink)
{
    return flw_meta_rounded_bytes(span_bytes(shrink)) + flw_meta_rounded_bytes(slot_bytes(shrink));
}

uint64_t flw_page_map_slot_count(unsigned shrink)
{
    return slot_bytes(shrink) / sizeof(struct flw_slot);
}

static bool reserve_names(struct flw_page_map *map, uint64_t bytes)
{
    bool is_reserved =
        flw_meta_reserve_pair(&map->cell_meta, cell_bytes(map->has_cells, bytes), &map->unit_meta,
                              unit_bytes(bytes), FLW_CELL_COUNT * sizeof(uint32_t));
    return is_reserved && flw_meta_open(&map->unit_meta) &&
           (!map->has_cells || flw_meta_open(&map->cell_meta)) &&
           flw_meta_reserve(&map->page_meta, page_bytes(bytes)) && flw_meta_open(&map->page_meta);
}

bool flw_page_map_init(struct flw_page_map *map, uint64_t base, uint64_t bytes, bool has_cells,
                       uint32_t no_bin, unsigned shrink)
{
    *map = (struct flw_page_map){
        .base = base, .mask = bytes - 1, .has_cells = has_cells, .no_bin = no_bin};
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        map->slab_units[c] = (uint8_t)flw_class_slab_units(c);
    }
    if (!reserve_names(map, bytes) || !flw_meta_reserve(&map->span_meta, span_bytes(shrink)) ||
        !flw_meta_reserve(&map->slot_meta, slot_bytes(shrink))) {
        goto fail;
    }
    map->spans = map->span_meta.base;
    map->slots = map->slot_meta.base;
    map->slots_mask = slot_bytes(shrink) - sizeof(struct flw_slot);
    map->units = (uint32_t *)(void *)map->unit_meta.base;
    /* Offset 0 of both arenas: the span without slots, and the slot with a word that never
     * matches. */
    struct flw_span *nothing = flw_meta_extend(&map->span_meta, sizeof *nothing, SPAN_ALIGN);
    struct flw_slot *none = flw_meta_extend(&map->slot_meta, sizeof *none, SPAN_ALIGN);
    if (nothing == NULL || none == NULL) {
        goto fail;
    }
    nothing->bin = no_bin;
    /* -5 means "the word, live". In context order no bin is full, but no cache has room for this
     * size. */
    none->allocation = ~0ull;
    return true;
fail:
    flw_page_map_finish(map);
    return false;
}

void flw_page_map_finish(struct flw_page_map *map)
{
    flw_meta_release(&map->cell_meta);
    flw_meta_release(&map->unit_meta);
    flw_meta_release(&map->page_meta);
    flw_meta_release(&map->span_meta);
    flw_meta_release(&map->slot_meta);
}

/* ---- names */

static void note_written(struct flw_page_map *map, uint64_t begin, uint64_t end)
{
    const uint64_t page_units = PAGE_BYTES / sizeof *map->units;
    for (uint64_t page = begin / page_units; page < flw_div_up(end, page_units); page++) {
        unsigned char *bits = &map->page_meta.base[page / 8], bit = (unsigned char)(1u << page % 8);
        map->written_pages += (*bits & bit) == 0;
        *bits |= bit;
    }
}

void flw_page_map_set_units(struct flw_page_map *map, uint64_t begin, uint32_t count,
                            const struct flw_span *span)
{
    uint32_t name = span != NULL ? flw_page_map_name(map, span) : 0;
    note_written(map, begin, begin + count);
    for (uint32_t i = 0; i < count; i++) {
        map->units[begin + i] = name;
    }
}

/* Set the cells of a slab, without a last cell in which no block begins: one whose first units
 * alone belong to the slab. */
static void set_cells(struct flw_page_map *map, const struct flw_span *run, uint32_t name)
{
    uint64_t begin = run->u.run.begin_unit, end = begin + run->u.run.unit_count;
    for (uint64_t cell = begin / FLW_CELL_UNITS; cell < end / FLW_CELL_UNITS; cell++) {
        flw_page_map_cells(map)[cell] = name;
    }
}

void flw_page_map_set_slab(struct flw_page_map *map, const struct flw_span *slab)
{
    const struct flw_span *run = slab->u.slab.run;
    if (flw_page_map_has_cells(map, slab)) {
        set_cells(map, run, flw_page_map_name(map, slab));
    } else {
        flw_page_map_set_units(map, run->u.run.begin_unit, run->u.run.unit_count, slab);
    }
}

void flw_page_map_clear_slab(struct flw_page_map *map, const struct flw_span *slab)
{
    const struct flw_span *run = slab->u.slab.run;
    if (flw_page_map_has_cells(map, slab)) {
        set_cells(map, run, 0);
    } else { /* without cells the units remain known as the pool's (heap.c: context order) */
        flw_page_map_set_units(map, run->u.run.begin_unit, run->u.run.unit_count,
                               map->has_cells ? NULL : run);
    }
}

/* ---- spans */

struct flw_span *flw_page_map_next_span(const struct flw_page_map *map, const struct flw_span *span)
{
    uint64_t at = span == NULL ? 0 : (uint64_t)((const unsigned char *)span - map->spans);
    uint64_t next = flw_align_up(at + sizeof *span, SPAN_ALIGN); /* the first belongs to nothing */
    return next < map->span_meta.used_bytes ? (struct flw_span *)(void *)(map->spans + next) : NULL;
}

static struct flw_span *new_span(struct flw_page_map *map, uint64_t slot_count)
{
    uint64_t spans_used = map->span_meta.used_bytes;
    struct flw_span *span = flw_meta_extend(&map->span_meta, sizeof *span, SPAN_ALIGN);
    /* One slot more than used: read by an index into the slab's tail, or below a run. */
    struct flw_slot *slots =
        span == NULL
            ? NULL
            : flw_meta_extend(&map->slot_meta, slot_count * sizeof(struct flw_slot), SPAN_ALIGN);
    if (slots == NULL) {
        map->span_meta.used_bytes = spans_used;
        return NULL;
    }
    __atomic_store_n(&span->bin, map->no_bin, __ATOMIC_RELAXED);
    span->slots = (uint64_t)((unsigned char *)slots - map->slots);
    return span;
}

/* Not inlined: callers seldom need it. */
FLW_NOINLINE struct flw_span *flw_page_map_extend_runs(struct flw_page_map *map)
{
    struct flw_span *run = new_span(map, 2);
    if (run != NULL) {
        run->magic = 2;
        __atomic_store_n(&run->kind, FLW_SPAN_RUN, __ATOMIC_RELAXED);
    }
    return run;
}

struct flw_span *flw_page_map_copy_run(struct flw_page_map *map, const struct flw_span *run)
{
    struct flw_span *copy = flw_page_map_unused_run(map);
    if (copy != NULL) {
        copy->u.run = run->u.run;
    }
    return copy;
}

struct flw_span *flw_page_map_new_run(struct flw_page_map *map)
{
    static const struct flw_span blank;
    return flw_page_map_copy_run(map, &blank);
}

struct flw_span *flw_page_map_new_slab(struct flw_page_map *map, unsigned class_index,
                                       unsigned step_log2)
{
    struct flw_span **unused = &map->unused_slabs[class_index][step_log2];
    struct flw_span *slab = *unused;
    uint64_t size = flw_class_bytes(class_index);
    uint64_t count = ((uint64_t)map->slab_units[class_index] << step_log2) * FLW_UNIT_BYTES / size;
    if (slab != NULL) {
        *unused = slab->next_unused;
    } else {
        slab = new_span(map, count + 1);
        if (slab == NULL) {
            return NULL;
        }
        __atomic_store_n(&slab->kind, FLW_SPAN_SLAB, __ATOMIC_RELAXED);
        slab->magic = UINT64_MAX / size + 1;
    }
    slab->u.slab = (struct flw_slab_part){.slot_count = (uint32_t)count,
                                          .free_count = (uint32_t)count,
                                          .class_index = (uint8_t)class_index,
                                          .step_log2 = (uint8_t)step_log2};
    return slab;
}

void flw_page_map_drop_slab(struct flw_page_map *map, struct flw_span *slab)
{
    struct flw_slab_part *part = &slab->u.slab;
    slab->next_unused = map->unused_slabs[part->class_index][part->step_log2];
    map->unused_slabs[part->class_index][part->step_log2] = slab;
}

uint64_t flw_page_map_host_bytes(const struct flw_page_map *map, uint64_t unit_count)
{
    uint64_t named_cell_bytes =
        map->has_cells ? flw_div_up(unit_count, FLW_CELL_UNITS) * sizeof(uint32_t) : 0;
    return map->span_meta.used_bytes + map->slot_meta.used_bytes + map->written_pages * PAGE_BYTES +
           flw_align_up(named_cell_bytes, PAGE_BYTES);
}
