/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: handles, the numbers of streams, events, contexts and so on. A handle is checked by a
 * lookup and never dereferenced, so a wild or dead one is refused, not read. A removed handle is
 * reused first, to detect caches keyed by handle. Does not: own the objects. Synchronization: the
 * world's lock. */
#ifndef FLW_SIMCUDA_TABLE_H
#define FLW_SIMCUDA_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct flw_table {
    void **object;  /* by index; NULL = free */
    uint32_t *free; /* stack of free indices */
    uint32_t count, capacity, free_count;
    uint32_t live_count;
    uint64_t base;     /* the handle of index 0 */
    bool keeps_unused; /* mild: never reuse a handle */
};

void flw_table_init(struct flw_table *table, unsigned tag, bool keeps_unused);
void flw_table_finish(struct flw_table *table);
uint64_t flw_table_add(struct flw_table *table, void *object);
void flw_table_remove(struct flw_table *table, uint64_t handle);

static inline void *flw_table_find(const struct flw_table *table, uint64_t handle)
{
    uint64_t index = (handle - table->base) >> 4;
    if (index >= table->count || (handle & 15) != 0) {
        return 0;
    }
    return table->object[index];
}

#endif
