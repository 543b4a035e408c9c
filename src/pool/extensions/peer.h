/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the devices that may access the pool's memory, from the start and at run time. */
#ifndef FLW_POOL_PEER_H
#define FLW_POOL_PEER_H

#include "pool/state/pool.h"

/* Return OK if the device exists, is not the pool's own, and can access it; otherwise log a line.
 * Makes driver calls. */
fallow_status flw_pool_check_peer(struct flw_pool *pool, int peer);

/* True if the existing other device `peer` can be given access to the pool's memory: virtual
 * memory management, and cuDeviceCanAccessPeer. Makes driver calls. */
bool flw_pool_is_reached_by(struct flw_pool *pool, int peer);

#endif
