/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trim for tests: wait up to a tenth of a second, and count a timeout as success. */
#ifndef FLW_TESTS_SUPPORT_TRIM_H
#define FLW_TESTS_SUPPORT_TRIM_H

#include "fallow/fallow.h"

static inline fallow_status flw_test_trim(fallow_pool *pool, size_t keep_bytes)
{
    fallow_status status = fallow_pool_trim(pool, keep_bytes, 100000000, NULL);
    return status == FALLOW_TIMEOUT ? FALLOW_OK : status;
}

#endif
