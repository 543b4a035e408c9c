/* SPDX-License-Identifier: Apache-2.0 */
#include "report/packing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"

#include "common/tool_host.h"

/* Bounds for both orders together: inspected blocks, and eighths of moved entries. The same on every machine. */
#define MOST_STEPS   (UINT64_C(1) << 26)
#define MOST_ENTRIES (UINT64_C(1) << 21) /* in all columns: 64 MiB */

#define COLUMN_BLOCKS 64 /* about so many begin in the narrowest column */
#define MOST_COLUMNS  1024
#define WIDENING      8 /* a column is this many of the level below */
#define MOST_LEVELS   5

/* A block: a rectangle of ops and addresses. */
struct item {
    uint64_t address; /* before the block is placed: the key of its order */
    uint64_t size_bytes;
    uint64_t begin_op, end_op;
};

/* Placed blocks that live in a stretch of ops, by address. */
struct column {
    struct item *placed;
    size_t count, capacity;
};

/* All ops, in columns of one width. A block is compared only with the blocks of one column that contains its life; a
 * short life has a narrow column with few blocks. The last level is one column. */
struct level {
    struct column *columns; /* in packing->columns */
    size_t count;
    uint64_t column_ops;
};

struct packing {
    struct item *items; /* in placing order */
    size_t count;
    struct column columns[2 * MOST_COLUMNS]; /* of all levels */
    size_t column_count;
    struct level levels[MOST_LEVELS];
    size_t level_count;
    uint64_t step_count, entry_count;
};

/* Order by falling key; of equals, the block that begins first. */
static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int falling = (x->address < y->address) - (x->address > y->address);
    return falling != 0 ? falling : (x->begin_op > y->begin_op) - (x->begin_op < y->begin_op);
}

/* ---- placed blocks with overlapping lives ---- */

static bool meets(const struct item *a, const struct item *b)
{
    return a->begin_op < b->end_op && b->begin_op < a->end_op;
}

static size_t column_of(const struct level *level, uint64_t op)
{
    return (size_t)flw_min(op / level->column_ops, level->count - 1);
}

/* Return the narrowest column that contains the whole life. */
static const struct column *find_column(const struct packing *packing, const struct item *item)
{
    const struct level *level = packing->levels;
    while (column_of(level, item->begin_op) != column_of(level, item->end_op - 1)) {
        level++;
    }
    return &level->columns[column_of(level, item->begin_op)];
}

/* Return the lowest address at which the item overlaps no placed block of an overlapping life. */
static uint64_t find_address(struct packing *packing, const struct item *item)
{
    const struct column *column = find_column(packing, item);
    uint64_t address = 0;
    size_t i = 0;
    for (; i < column->count; i++) {
        const struct item *other = &column->placed[i];
        if (!meets(other, item)) {
            continue;
        }
        if (other->address >= address + item->size_bytes) {
            break;
        }
        address = flw_max(address, other->address + other->size_bytes);
    }
    packing->step_count += i;
    return address;
}

/* Insert the item. Counts an eighth of a step per moved entry. */
static uint64_t place_in(struct column *column, const struct item *item)
{
    size_t low = 0;
    size_t high = column->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (column->placed[middle].address <= item->address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    column->placed =
        flw_host_grow(column->placed, &column->capacity, column->count + 1, sizeof *item);
    memmove(&column->placed[low + 1], &column->placed[low], (column->count - low) * sizeof *item);
    column->placed[low] = *item;
    return (column->count++ - low) / 8;
}

static void place(struct packing *packing, const struct item *item)
{
    for (size_t i = 0; i < packing->level_count; i++) {
        const struct level *level = &packing->levels[i];
        size_t first = column_of(level, item->begin_op), last = column_of(level, item->end_op - 1);
        for (size_t c = first; c <= last; c++) {
            packing->step_count += place_in(&level->columns[c], item);
        }
        packing->entry_count += last - first + 1;
    }
}

#define CHECKED_COUNT 4096 /* blocks that is_packed checks, in quadratic time */

/* True if no two blocks with overlapping lives share a byte. */
static bool is_packed(const struct packing *packing)
{
    size_t count = flw_min(packing->count, CHECKED_COUNT);
    for (size_t i = 0; i < count; i++) {
        const struct item *a = &packing->items[i];
        for (size_t j = i + 1; j < count; j++) {
            const struct item *b = &packing->items[j];
            bool shares_bytes =
                b->address < a->address + a->size_bytes && a->address < b->address + b->size_bytes;
            if (shares_bytes && meets(a, b)) {
                return false;
            }
        }
    }
    return true;
}

/* Sort the items by size, or by size times life, and place them. Returns the highest end, or UINT64_MAX after too many
 * steps. */
static uint64_t pack(struct packing *packing, bool is_by_life)
{
    uint64_t top = 0;
    packing->entry_count = 0;
    for (size_t i = 0; i < packing->column_count; i++) {
        packing->columns[i].count = 0;
    }
    for (size_t i = 0; i < packing->count; i++) {
        struct item *item = &packing->items[i];
        uint64_t factor = is_by_life ? item->end_op - item->begin_op : 1;
        if (__builtin_mul_overflow(item->size_bytes, factor, &item->address)) {
            item->address = UINT64_MAX;
        }
    }
    qsort(packing->items, packing->count, sizeof *packing->items, compare);
    for (size_t i = 0; i < packing->count; i++) {
        struct item *item = &packing->items[i];
        item->address = find_address(packing, item);
        if (packing->step_count > MOST_STEPS || packing->entry_count > MOST_ENTRIES) {
            return UINT64_MAX;
        }
        place(packing, item);
        top = flw_max(top, item->address + item->size_bytes);
    }
    FLW_ASSERT_VALID(is_packed(packing));
    return top;
}

/* List the blocks. Returns false if the sizes add up to more than the address space. */
static bool list_items(const struct flw_program *program, const struct flw_life *lives,
                       struct packing *packing)
{
    uint64_t total_bytes = 0;
    bool fits = true;
    for (size_t i = 0; fits && i < program->block_count; i++) {
        if (lives[i].begin_op != UINT64_MAX) {
            uint64_t size_bytes = program->ops[lives[i].begin_op].size_bytes;
            fits = !__builtin_add_overflow(total_bytes, size_bytes, &total_bytes);
            packing->items[packing->count++] = (struct item){
                .size_bytes = size_bytes, .begin_op = lives[i].begin_op, .end_op = lives[i].end_op};
        }
    }
    return fits;
}

static void make_levels(const struct flw_program *program, struct packing *packing)
{
    size_t count = (size_t)flw_min(program->block_count / COLUMN_BLOCKS + 1, MOST_COLUMNS);
    for (bool is_last = false; !is_last; count = (size_t)flw_div_up(count, WIDENING)) {
        is_last = count == 1;
        packing->levels[packing->level_count++] =
            (struct level){.columns = &packing->columns[packing->column_count],
                           .count = count,
                           .column_ops = flw_div_up(program->op_count + 1, count)};
        packing->column_count += count;
    }
}

uint64_t flw_packing_measure(const struct flw_program *program, const struct flw_life *lives)
{
    FLW_LOCAL struct packing *packing = flw_host_alloc(1, sizeof *packing);
    uint64_t bytes = UINT64_MAX;
    packing->items = flw_host_alloc(program->block_count, sizeof *packing->items);
    make_levels(program, packing);
    if (list_items(program, lives, packing)) {
        bytes = pack(packing, false);
        bytes = bytes == UINT64_MAX ? bytes : flw_min(bytes, pack(packing, true));
    }
    for (size_t i = 0; i < packing->column_count; i++) {
        flw_host_free(packing->columns[i].placed);
    }
    flw_host_free(packing->items);
    return bytes;
}
