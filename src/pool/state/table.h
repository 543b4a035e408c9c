/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's table of pools: from a handle to its pool, and to all pools.
 */
#ifndef FLW_POOL_STATE_TABLE_H
#define FLW_POOL_STATE_TABLE_H

#include "pool/state/pool.h"

/* The pool of a handle, or NULL: destroyed, foreign, NULL. Never follows the handle itself. */
struct flw_pool *flw_pool_of(const void *handle);
/* A handle for a pool that is being made, refused until it is published; NULL: the table is full. */
fallow_pool *flw_pool_table_take(void);
/* The pool is complete, its handle included: other threads may come by from now on. */
void flw_pool_table_publish(struct flw_pool *pool);
/* The handle is refused; wait until no other pool's thread is in a visit; the place is another's. */
void flw_pool_table_drop(const void *handle);
void flw_pool_table_await(const void *handle);
void flw_pool_table_free(const void *handle);
void flw_pool_table_forget(void); /* in the child of a fork */
/* Call `visit` for every pool of the process, none locked; none is freed during its visit. */
void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context);

#endif
