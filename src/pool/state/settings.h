/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface to the caller's data: structs with a size, the settings of a pool, lines to
 * the log. */
#ifndef FLW_POOL_STATE_SETTINGS_H
#define FLW_POOL_STATE_SETTINGS_H

#include "pool/state/pool.h"

/* Copy a caller's struct into ours: a shorter, older one is completed with zeros; a longer, newer
 * one is accepted if the additional bytes are zero. VERSION otherwise. */
fallow_status flw_struct_accept(void *ours, size_t our_size, const void *theirs);
/* Copy our struct to the caller's, up to the caller's struct_size. */
fallow_status flw_struct_answer(void *theirs, const void *ours, size_t our_size);

/* Set defaults and return NULL, or return the invalid setting and the valid values. */
const char *flw_settings_resolve(fallow_pool_config *config);

void flw_pool_log(const struct flw_pool *pool, fallow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
