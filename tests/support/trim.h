/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the trim of tests that want what can be had: within a tenth of a second, and OK where more would
 * have taken longer.
 */
#ifndef FLW_TESTS_SUPPORT_TRIM_H
#define FLW_TESTS_SUPPORT_TRIM_H

#include "fallow/fallow.h"

static inline fallow_status flw_test_trim(fallow_pool *pool, size_t keep_bytes)
{
    fallow_status status = fallow_pool_trim(pool, keep_bytes, 100000000, NULL);
    return status == FALLOW_TIMEOUT ? FALLOW_OK : status;
}

#endif
