/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the answer to "is this address a hooked entry point of the driver?": pairs of a real address
 * and its wrapper, sorted by the real one. Substitution asks nothing else: no name, no version.
 * Does not: learn addresses (real.c), or lock: a table is filled by one thread, then never changed.
 *
 * INVARIANTS (flw_address_table_is_valid recomputes them)
 *   1. real addresses ascend strictly: one address has one wrapper
 *   2. no address and no wrapper is 0
 *   3. no wrapper is a real address: what was substituted once is never substituted again
 */
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
    enum flw_hook hook; /* whose wrapper */
};

struct flw_address_table {
    unsigned count;
    struct flw_address at[FLW_ADDRESS_MAX];
};

/* Put a pair in. An address that is there keeps its wrapper: the later claim is left out. A pair with a
 * 0 in it, or whose address is a wrapper, is left out. */
void flw_address_table_add(struct flw_address_table *table, struct flw_address pair);

bool flw_address_table_is_valid(const struct flw_address_table *table);

/* The pair of a real address; NULL: it is none. */
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

#endif
