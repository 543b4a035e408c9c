/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the implementation of table.h: a growing array and a stack of free places.
 * Independent of the objects. */
#include "simcuda/table.h"

#include <stdlib.h>

#include "simcuda/host.h"

void flw_table_init(struct flw_table *table, unsigned tag, bool keeps_unused)
{
    *table = (struct flw_table){.base = 0x6a0000000010ull + ((uint64_t)tag << 36),
                                .keeps_unused = keeps_unused};
}

void flw_table_finish(struct flw_table *table)
{
    free(table->object);
    free(table->free);
    table->object = NULL;
    table->free = NULL;
    table->count = table->capacity = table->free_count = table->live_count = 0;
}

static void grow(struct flw_table *table)
{
    table->capacity = table->capacity == 0 ? 64 : table->capacity * 2;
    table->object = flw_host_resize(table->object, table->capacity * sizeof *table->object);
    table->free = flw_host_resize(table->free, table->capacity * sizeof *table->free);
}

uint64_t flw_table_add(struct flw_table *table, void *object)
{
    uint32_t index;
    if (table->free_count > 0) {
        index = table->free[--table->free_count];
    } else {
        if (table->count == table->capacity) {
            grow(table);
        }
        index = table->count++;
    }
    table->object[index] = object;
    table->live_count++;
    return table->base + ((uint64_t)index << 4);
}

void flw_table_remove(struct flw_table *table, uint64_t handle)
{
    uint32_t index = (uint32_t)((handle - table->base) >> 4);
    table->object[index] = NULL;
    table->live_count--;
    if (!table->keeps_unused) {
        table->free[table->free_count++] = index;
    }
}
