/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/address_table.h"

static bool is_a_wrapper(const struct flw_address_table *table, uintptr_t address)
{
    for (unsigned i = 0; i < table->count; i++) {
        if (table->at[i].wrapper == address) {
            return true;
        }
    }
    return false;
}

void flw_address_table_add(struct flw_address_table *table, struct flw_address pair)
{
    if (pair.real == 0 || pair.wrapper == 0 || pair.real == pair.wrapper ||
        is_a_wrapper(table, pair.real) || flw_address_table_find(table, pair.wrapper) != NULL ||
        table->count == FLW_ADDRESS_MAX) {
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
