/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: log lines about refusals of the driver or the host. */
#ifndef FLW_POOL_STATE_REFUSAL_LOG_H
#define FLW_POOL_STATE_REFUSAL_LOG_H

#include "pool/state/pool.h"

/* Log each refusal of a feature that is not required, once. Cheap if nothing is new. */
void flw_pool_log_refusals(struct flw_pool *pool);
/* After a refused growth with required kinds of handles: log a line, once. */
void flw_pool_log_required(struct flw_pool *pool);
/* Log the call, table or setting that made create fail, and what to do. */
void flw_pool_log_no_heap(const struct flw_pool *pool, fallow_status status);
/* Log that the tables found no room even at their smallest, and how much there was. */
void flw_pool_log_no_tables(const struct flw_pool *pool);
void flw_pool_log_small_tables(const struct flw_pool *pool);
/* Log that the driver keeps so many bytes, or addresses or events only, with the last refused
 * call. */
void flw_pool_log_unreleased(const struct flw_pool *pool, uint64_t bytes);

#endif
