/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: making a pool, and what layers above the pool may use of it. Nothing below the root of this folder includes it.
 */
#ifndef FLW_POOL_POOL_H
#define FLW_POOL_POOL_H

#include "pool/extensions/sleep/sleep.h"
#include "pool/extensions/stats.h"
#include "pool/state/account.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/capture.h"
#include "pool/streams/epoch.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/streams.h"

/* fallow_pool_create on a driver that is open already, whose table stays the caller's, and under a name:
 * context_id, not 0, is what flw_context_alloc compares with. */
struct flw_pool_place {
    const struct flw_driver *driver;
    uint64_t context_id;
    /* a request from here on is a driver allocation of its own; 0: the default, which is the most, too */
    uint64_t dedicated_bytes;
    uint64_t reserve_bytes; /* see flw_pool */
};
fallow_status flw_pool_create(const fallow_pool_config *config, const struct flw_pool_place *place,
                              fallow_pool **out_pool);

#endif
