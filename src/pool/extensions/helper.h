/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the thread of a pool's that polls it; the end of all of them with the process.
 */
#ifndef FLW_POOL_HELPER_H
#define FLW_POOL_HELPER_H

#include "pool/state/pool.h"

/* The pool is published. The thread has ended, too, before a driver's handlers of the exit run. False: it cannot be
 * started. */
bool flw_pool_start_helper(struct flw_pool *pool);
void flw_pool_stop_helper(struct flw_pool *pool); /* none: nothing */
/* The same: it ends by itself, and is not joined. */
void flw_pool_leave_helper(struct flw_pool *pool);
void flw_helpers_forget_all(void); /* in the child of a fork */

#endif
