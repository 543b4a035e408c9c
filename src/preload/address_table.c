/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/address_table.h"

#include <stddef.h>

static bool is_a_wrapper(const struct flw_address_table *table, uintptr_t address)
{
    for (unsigned i = 0; i < table->count; i++) {
        if (table->at[i].wrapper == address) {
            return true;
        }
    }
    return false;
}

void flw_address_table_add(struct flw_address_table *table, uintptr_t real, uintptr_t wrapper)
{
    if (real == 0 || wrapper == 0 || real == wrapper || is_a_wrapper(table, real) ||
        flw_address_table_find(table, wrapper) != 0 || table->count == FLW_ADDRESS_MAX) {
        return;
    }
    unsigned place = 0;
    while (place < table->count && table->at[place].real < real) {
        place++;
    }
    if (place < table->count && table->at[place].real == real) {
        table->alias_count += table->at[place].wrapper != wrapper;
        return;
    }
    for (unsigned i = table->count++; i > place; i--) {
        table->at[i] = table->at[i - 1];
    }
    table->at[place] = (struct flw_address){.real = real, .wrapper = wrapper};
}

bool flw_address_table_is_valid(const struct flw_address_table *table)
{
    if (table->count > FLW_ADDRESS_MAX) {
        return false;
    }
    for (unsigned i = 0; i < table->count; i++) {
        if (table->at[i].real == 0 || table->at[i].wrapper == 0 ||
            (i > 0 && table->at[i].real <= table->at[i - 1].real) ||
            is_a_wrapper(table, table->at[i].real)) {
            return false;
        }
    }
    return true;
}
