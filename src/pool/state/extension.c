/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/extension.h"

void flw_pool_enlist(struct flw_pool *pool, const struct flw_extension *row)
{
    for (unsigned i = 0; i < FLW_EXTENSIONS_MOST; i++) {
        const struct flw_extension *there = NULL;
        if (__atomic_compare_exchange_n(&pool->extensions[i], &there, row, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            there == row) {
            return;
        }
    }
    FLW_ASSERT(false); /* more features than places */
}
