/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cells of what is kept of a pickle.
 * Does not: keep anything that nobody asks for.
 */
#include "trace/harvest.h"

#include <stdlib.h>

#include "base/bits.h"
#include "record/array.h"

#define NARROW_BITS 48
#define KIND_SHIFT  56 /* of a cell: kind in the top byte */
#define KEY_SHIFT   48 /* of a dict's cell: key word below it */
#define WIDE        0x80u

struct node {
    uint32_t first; /* chunk; 0: none */
    uint32_t last;
    uint32_t offset;
    uint32_t count; /* entries kept */
};

struct flw_harvest {
    struct node *nodes;
    size_t node_count, node_room;
    uint64_t *cells;
    size_t cell_count, cell_room;
    struct flw_intern intern;
};

static const struct flw_pickle_value absent = {0, FLW_PICKLE_ABSENT};

static bool add_cell(struct flw_harvest *harvest, uint64_t cell)
{
    uint64_t *cells =
        flw_array_reserve(harvest->cells, harvest->cell_count, &harvest->cell_room, sizeof(*cells));
    if (FLW_UNLIKELY(cells == NULL)) {
        return false;
    }
    harvest->cells = cells;
    cells[harvest->cell_count++] = cell;
    return true;
}

struct flw_harvest *flw_harvest_create(void)
{
    struct flw_harvest *harvest = calloc(1, sizeof(*harvest));
    if (harvest != NULL && !add_cell(harvest, 0)) { /* so that 0 is no chunk */
        free(harvest);
        return NULL;
    }
    return harvest;
}

bool flw_harvest_add_node(struct flw_harvest *harvest, enum flw_pickle_kind kind, uint64_t offset,
                          struct flw_pickle_value *out_value)
{
    struct node *nodes =
        flw_array_reserve(harvest->nodes, harvest->node_count, &harvest->node_room, sizeof(*nodes));
    if (FLW_UNLIKELY(nodes == NULL)) {
        return false;
    }
    harvest->nodes = nodes;
    nodes[harvest->node_count] = (struct node){0, 0, (uint32_t)offset, 0};
    *out_value = (struct flw_pickle_value){harvest->node_count++, (uint32_t)kind};
    return true;
}

static uint64_t header_cell(uint32_t next, uint32_t count)
{
    return (uint64_t)next << 32 | count;
}

static uint32_t header_next(uint64_t cell)
{
    return (uint32_t)(cell >> 32);
}

static uint32_t header_count(uint64_t cell)
{
    return (uint32_t)cell;
}

static bool add_item(struct flw_harvest *harvest, struct flw_pickle_value item, uint32_t *count)
{
    bool is_dict = item.kind == FLW_PICKLE_DICT;
    if ((is_dict && harvest->nodes[item.bits].first != 0) || item.kind == FLW_PICKLE_LIST) {
        (*count)++;
        return add_cell(harvest, (uint64_t)item.kind << KIND_SHIFT | item.bits);
    }
    return true;
}

static bool is_of_use(const struct flw_pickle_value *pair)
{
    return pair[0].kind == FLW_PICKLE_WORD && pair[1].kind != FLW_PICKLE_ABSENT;
}

static bool are_texts_only(const struct flw_pickle_value *values, size_t value_count)
{
    for (size_t i = 0; i < value_count; i += 2) {
        if (is_of_use(&values[i]) && values[i + 1].kind != FLW_PICKLE_TEXT) {
            return false;
        }
    }
    return true;
}

static bool add_pair(struct flw_harvest *harvest, const struct flw_pickle_value *pair,
                     uint32_t *count)
{
    struct flw_pickle_value value = pair[1];
    if (!is_of_use(pair)) {
        return true;
    }
    (*count)++;
    uint64_t tag = (uint64_t)value.kind << KIND_SHIFT | pair[0].bits << KEY_SHIFT;
    if (value.bits >> NARROW_BITS == 0) {
        return add_cell(harvest, tag | value.bits);
    }
    return add_cell(harvest, tag | (uint64_t)WIDE << KIND_SHIFT) && add_cell(harvest, value.bits);
}

bool flw_harvest_extend(struct flw_harvest *harvest, struct flw_pickle_value container,
                        const struct flw_pickle_value *values, size_t value_count)
{
    size_t header = harvest->cell_count;
    uint32_t count = 0;
    if (container.kind == FLW_PICKLE_DICT && value_count > 2 &&
        harvest->nodes[container.bits].first == 0 && are_texts_only(values, value_count)) {
        return true;
    }
    bool has_memory = add_cell(harvest, 0);
    if (container.kind == FLW_PICKLE_LIST) {
        for (size_t i = 0; has_memory && i < value_count; i++) {
            has_memory = add_item(harvest, values[i], &count);
        }
    } else {
        for (size_t i = 0; has_memory && i < value_count; i += 2) {
            has_memory = add_pair(harvest, &values[i], &count);
        }
    }
    if (!has_memory || count == 0) {
        harvest->cell_count = header;
        return has_memory;
    }
    struct node *node = &harvest->nodes[container.bits];
    node->count += count;
    harvest->cells[header] = header_cell(0, count);
    if (node->first == 0) {
        node->first = (uint32_t)header;
    } else {
        uint64_t *last = &harvest->cells[node->last];
        *last = header_cell((uint32_t)header, header_count(*last));
    }
    node->last = (uint32_t)header;
    return true;
}

void flw_harvest_destroy(struct flw_harvest *harvest)
{
    if (harvest != NULL) {
        free(harvest->nodes);
        free(harvest->cells);
        flw_intern_finish(&harvest->intern);
        free(harvest);
    }
}

static struct flw_pickle_value value_in(const uint64_t *cell)
{
    uint32_t kind = (uint32_t)(cell[0] >> KIND_SHIFT);
    if ((kind & WIDE) != 0) {
        return (struct flw_pickle_value){cell[1], kind & ~WIDE};
    }
    return (struct flw_pickle_value){cell[0] & ((UINT64_C(1) << NARROW_BITS) - 1), kind};
}

struct flw_pickle_value flw_harvest_get(const struct flw_harvest *harvest,
                                        struct flw_pickle_value dict, uint32_t word)
{
    struct flw_pickle_value found = absent;
    if (dict.kind != FLW_PICKLE_DICT) {
        return found;
    }
    uint32_t chunk = harvest->nodes[dict.bits].first;
    while (chunk != 0) {
        uint32_t count = header_count(harvest->cells[chunk]);
        const uint64_t *cell = &harvest->cells[chunk + 1];
        for (uint32_t i = 0; i < count; i++) {
            if ((cell[0] >> KEY_SHIFT & 0xFF) == word) {
                found = value_in(cell);
            }
            cell += (cell[0] >> KIND_SHIFT & WIDE) != 0 ? 2 : 1;
        }
        chunk = header_next(harvest->cells[chunk]);
    }
    return found;
}

struct flw_intern *flw_harvest_intern(struct flw_harvest *harvest)
{
    return &harvest->intern;
}

const struct flw_intern *flw_harvest_interned(const struct flw_harvest *harvest)
{
    return &harvest->intern;
}

uint64_t flw_harvest_offset(const struct flw_harvest *harvest, struct flw_pickle_value container)
{
    if (container.kind != FLW_PICKLE_DICT && container.kind != FLW_PICKLE_LIST) {
        return 0;
    }
    return harvest->nodes[container.bits].offset;
}

uint32_t flw_harvest_count(const struct flw_harvest *harvest, struct flw_pickle_value container)
{
    bool is_node = container.kind == FLW_PICKLE_DICT || container.kind == FLW_PICKLE_LIST;
    return is_node ? harvest->nodes[container.bits].count : 0;
}

struct flw_harvest_cursor flw_harvest_first(const struct flw_harvest *harvest,
                                            struct flw_pickle_value list)
{
    struct flw_harvest_cursor cursor = {0, 0, 0};
    if (list.kind == FLW_PICKLE_LIST) {
        cursor.chunk = harvest->nodes[list.bits].first;
    }
    if (cursor.chunk != 0) {
        cursor.cell = (uint64_t)cursor.chunk + 1;
        cursor.left = header_count(harvest->cells[cursor.chunk]);
    }
    return cursor;
}

bool flw_harvest_next(const struct flw_harvest *harvest, struct flw_harvest_cursor *cursor,
                      struct flw_pickle_value *out_value)
{
    if (cursor->chunk != 0 && cursor->left == 0) {
        cursor->chunk = header_next(harvest->cells[cursor->chunk]);
        if (cursor->chunk != 0) {
            cursor->cell = (uint64_t)cursor->chunk + 1;
            cursor->left = header_count(harvest->cells[cursor->chunk]);
        }
    }
    if (cursor->chunk == 0) {
        return false;
    }
    *out_value = value_in(&harvest->cells[cursor->cell]);
    cursor->cell++;
    cursor->left--;
    return true;
}
