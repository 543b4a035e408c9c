/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool's thread that polls it; the end of all such threads with the process. */
#ifndef FLW_POOL_HELPER_H
#define FLW_POOL_HELPER_H

#include "pool/state/pool.h"

/* Start the helper of a published pool. The thread ends before a driver's exit handlers run.
 * False: it cannot be started. */
bool flw_pool_start_helper(struct flw_pool *pool);
void flw_pool_stop_helper(struct flw_pool *pool); /* nothing if there is none */
/* The same without a join: the helper ends by itself. */
void flw_pool_leave_helper(struct flw_pool *pool);
void flw_helpers_forget_all(void); /* in the child of a fork */

#endif
