/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's table of pools: from a handle to the pool, and to all pools. */
#ifndef FLW_POOL_STATE_TABLE_H
#define FLW_POOL_STATE_TABLE_H

#include "pool/state/pool.h"

/* Return the pool of a handle, or NULL: destroyed, foreign, NULL. Never dereferences the handle. */
struct flw_pool *flw_pool_of(const void *handle);
/* Take a handle for a pool under construction, refused until published; NULL: the table is full. */
fallow_pool *flw_pool_table_take(void);
/* Publish the pool with the handle: from now on other threads may use it. */
void flw_pool_table_publish(struct flw_pool *pool);
/* Refuse the handle, wait until no other pool's thread visits the pool, and free the place. */
void flw_pool_table_drop(const void *handle);
void flw_pool_table_await(const void *handle);
void flw_pool_table_free(const void *handle);
void flw_pool_table_forget(void); /* in the child of a fork */
/* Call `visit` for every pool of the process, with none locked; no pool is freed
 * during the visit. */
void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context);

#endif
