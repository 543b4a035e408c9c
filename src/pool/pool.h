/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: creating a pool, and the interface for the layers above. No file below the root of this
 * folder includes it. */
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

/* Parameters of fallow_pool_create on an open driver, with a table that the caller keeps, and with
 * a name: context_id, not 0, which flw_context_alloc compares. */
struct flw_pool_place {
    const struct flw_driver *driver;
    uint64_t context_id;
    /* size from which a request is a driver allocation of its own; 0: the default, which is also
     * the largest value */
    uint64_t dedicated_bytes;
    uint64_t reserve_bytes; /* see flw_pool */
};
fallow_status flw_pool_create(const fallow_pool_config *config, const struct flw_pool_place *place,
                              fallow_pool **out_pool);

#endif
