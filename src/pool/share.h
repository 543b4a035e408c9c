/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the rest of the pool knows of sharing.
 */
#ifndef FLW_POOL_SHARE_H
#define FLW_POOL_SHARE_H

#include "pool/pool.h"

/* Is it a run that importers may have? Takes the heap lock. */
bool flw_share_is_exported(struct flw_pool *pool, const struct flw_span *span);
/* Exported handles whose blocks are freed and complete go back, and what the driver had refused to give up
 * of imports; driver calls. Not inside the gate. */
void flw_share_collect(struct flw_pool *pool);
/* The same for every import, by the one thread that holds the gate. */
CUresult flw_share_each_import(struct flw_pool *pool, flw_heap_stretch_function set,
                               flw_heap_stretch_function set_back, const void *context);
/* The pool ends; `is_lost`: no driver call. */
void flw_share_finish(struct flw_pool *pool, bool is_lost);

#endif
