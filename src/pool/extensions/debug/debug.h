/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pair of calls that allocate and free where debug checks are on: poison, red zones,
 * quarantine, the list of leaks. They stand before the ordinary slow pair and use nothing but it.
 *
 *   raw block    | front zone | what the caller gets, size bytes | back zone |
 *
 * Zones and poison are written on the stream that a block is allocated on. At its free the zones
 * are copied to a pinned ring on the stream that it is freed on, and compared by a later call that
 * finds the copy complete. Nothing is done inside a capture: that is counted as a check left out.
 */
#ifndef FLW_POOL_DEBUG_H
#define FLW_POOL_DEBUG_H

#include "pool/state/extension.h"

/* The front of a pool whose config has checks; create answers NOT_SUPPORTED where memory has no contents to
 * check. */
extern const struct flw_extension flw_debug_extension;

/* Inside a driver section. Check that memory keeps written bytes. NOT_SUPPORTED, with a message in the pool's log: the
 * simulated device has addresses only. */
fallow_status flw_debug_probe_contents(struct flw_pool *pool);

#endif
