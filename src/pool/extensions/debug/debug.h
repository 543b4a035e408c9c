/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: allocate and free with debug checks: poison, red zones, quarantine, the list of leaks.
 * They precede the ordinary slow pair and use only that.
 *
 *   raw block    | front zone | the caller's bytes | back zone |
 *
 * Zones and poison are written on the allocating stream. At the free the zones are copied to a
 * pinned ring on the freeing stream; a later call that finds the copy complete compares them.
 * Inside a capture nothing is done; that counts as a check left out. */
#ifndef FLW_POOL_DEBUG_H
#define FLW_POOL_DEBUG_H

#include "pool/state/extension.h"

/* The front of a pool with checks in the config; create returns NOT_SUPPORTED if memory has no
 * contents. */
extern const struct flw_extension flw_debug_extension;

/* Check that memory keeps written bytes. NOT_SUPPORTED, with a log line: the simulated device has
 * addresses only. In a driver section. */
fallow_status flw_debug_probe_contents(struct flw_pool *pool);

#endif
