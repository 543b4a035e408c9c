/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what crosses the boundary to the caller: structs with a size, the settings of a pool, lines to its log.
 */
#ifndef FLW_POOL_STATE_SETTINGS_H
#define FLW_POOL_STATE_SETTINGS_H

#include "pool/state/pool.h"

/* Copy a sized struct of the caller's into ours: an older, shorter one is completed with zeros; a
 * newer, longer one is accepted if what we do not know is zero. VERSION otherwise. */
fallow_status flw_struct_accept(void *ours, size_t our_size, const void *theirs);
/* Copy ours out, as much as the caller's struct_size has room for. */
fallow_status flw_struct_answer(void *theirs, const void *ours, size_t our_size);

/* NULL, and defaults are set; or the setting that is invalid, and what it may be. */
const char *flw_settings_resolve(fallow_pool_config *config);

void flw_pool_log(const struct flw_pool *pool, fallow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
