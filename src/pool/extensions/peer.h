/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which other devices may access the pool's memory, from the start and at run time.
 */
#ifndef FLW_POOL_PEER_H
#define FLW_POOL_PEER_H

#include "pool/state/pool.h"

/* OK: the device exists, is not the pool's own, and reaches it. Else a line to the log. Driver calls. */
fallow_status flw_pool_check_peer(struct flw_pool *pool, int peer);

/* True if `peer`, another device that exists, can be allowed to access the pool's memory: virtual memory
 * management, and cuDeviceCanAccessPeer. Driver calls. */
bool flw_pool_is_reached_by(struct flw_pool *pool, int peer);

#endif
