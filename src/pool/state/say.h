/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: lines to the log about what the driver or the host refused a pool.
 */
#ifndef FLW_POOL_STATE_SAY_H
#define FLW_POOL_STATE_SAY_H

#include "pool/state/pool.h"

/* What the driver has refused and was not insisted on: a line each, once. Cheap where nothing is
 * new. */
void flw_pool_say_refusals(struct flw_pool *pool);
/* A growth was refused: if it asked for kinds of handles that were insisted on, a line, once. */
void flw_pool_say_insisted(struct flw_pool *pool);
/* Create ended with this status: which call, table or setting it was, and what to do. */
void flw_pool_say_no_heap(const struct flw_pool *pool, fallow_status status);
/* At their smallest the tables found no room; what was there before is. */
void flw_pool_say_no_tables(const struct flw_pool *pool);
void flw_pool_say_small_tables(const struct flw_pool *pool);
/* The driver does not take so many bytes back, or addresses or events alone: the call that it refused last. */
void flw_pool_say_what_stays(const struct flw_pool *pool, uint64_t bytes);

#endif
