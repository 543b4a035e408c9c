/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of hooked entry points: pairs of a real address and the wrapper, sorted by the
 * real one. Substitution uses only this table: no name, no version.
 * Does not: find addresses (real.c), or lock: one thread fills a table, which then never changes.
 *
 * INVARIANTS (flw_address_table_is_valid recomputes them)
 *   1. real addresses ascend strictly: one address has one wrapper
 *   2. no address and no wrapper is 0
 *   3. no wrapper is a real address: a substituted address is never substituted again */
#ifndef FLW_PRELOAD_ADDRESS_TABLE_H
#define FLW_PRELOAD_ADDRESS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/hooks.h"

/* dlsym's address, and up to three of cuGetProcAddress. */
#define FLW_ADDRESS_MAX (4 * FLW_HOOK_COUNT)

struct flw_address {
    uintptr_t real, wrapper;
    enum flw_hook hook; /* the hook of the wrapper */
};

struct flw_address_table {
    unsigned count;
    struct flw_address at[FLW_ADDRESS_MAX];
};

/* Return the pair of a real address; NULL: none. */
static inline const struct flw_address *
flw_address_table_find(const struct flw_address_table *table, uintptr_t real)
{
    unsigned begin = 0, end = table->count;
    while (begin < end) {
        unsigned middle = (begin + end) / 2;
        if (table->at[middle].real < real) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin < table->count && table->at[begin].real == real ? &table->at[begin] : NULL;
}

static inline bool flw_address_is_a_wrapper(const struct flw_address_table *table,
                                            uintptr_t address)
{
    for (unsigned i = 0; i < table->count; i++) {
        if (table->at[i].wrapper == address) {
            return true;
        }
    }
    return false;
}

/* Add a pair. An address in the table keeps the wrapper. A pair with a 0, or with a wrapper as the
 * address, is ignored. */
static inline void flw_address_table_add(struct flw_address_table *table, struct flw_address pair)
{
    if (pair.real == 0 || pair.wrapper == 0 || pair.real == pair.wrapper ||
        flw_address_is_a_wrapper(table, pair.real) ||
        flw_address_table_find(table, pair.wrapper) != NULL || table->count == FLW_ADDRESS_MAX) {
        return;
    }
    unsigned place = 0;
    while (place < table->count && table->at[place].real < pair.real) {
        place++;
    }
    if (place < table->count && table->at[place].real == pair.real) {
        return;
    }
    for (unsigned i = table->count++; i > place; i--) {
        table->at[i] = table->at[i - 1];
    }
    table->at[place] = pair;
}

static inline bool flw_address_table_is_valid(const struct flw_address_table *table)
{
    if (table->count > FLW_ADDRESS_MAX) {
        return false;
    }
    for (unsigned i = 0; i < table->count; i++) {
        if (table->at[i].real == 0 || table->at[i].wrapper == 0 ||
            (i > 0 && table->at[i].real <= table->at[i - 1].real) ||
            flw_address_is_a_wrapper(table, table->at[i].real)) {
            return false;
        }
    }
    return true;
}

#endif
