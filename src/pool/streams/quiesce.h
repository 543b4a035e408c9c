/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wait for all that ever touched the pool's memory, before it is unmapped for a sleep or for
 * good: on its streams, of other contexts, freed or in use still; and the questions about captures that come
 * before every synchronisation, which would end one.
 * Does not: wait for peers and importers.
 */
#ifndef FLW_POOL_STREAMS_QUIESCE_H
#define FLW_POOL_STREAMS_QUIESCE_H

#include "pool/state/pool.h"

/* Synchronise the context, if a lost stream has memory that no fence covers, or only its place,
 * where that is wanted, and nothing is being captured. True: it is complete now. Driver calls. */
bool flw_pool_sync_uncoverable(struct flw_pool *pool, bool wants_place);
/* Driver calls, for memory of lost streams, once 64 MiB, or 64 streams and a 16th of the tracked
 * streams, were lost, or with `wants_all`: record an event behind all work of the context, if
 * nothing is being captured; no wait. Without cuCtxRecordEvent synchronise as above, if the caller
 * may wait. */
void flw_pool_cover_lost(struct flw_pool *pool, bool wants_all, bool may_wait);
/* Driver calls. Is the stream being captured, if it can be named? */
bool flw_pool_is_capturing(struct flw_pool *pool, struct flw_domain *domain);
/* Driver calls. OK: none that can be named is being captured. CAPTURING; DRIVER: it does not tell. */
fallow_status flw_pool_ask_captures(struct flw_pool *pool);
/* Is a stream that waits for the legacy one, which knows of those that the pool has never seen? */
bool flw_pool_is_blocking_capturing(struct flw_pool *pool);

/* In a driver section: wait for all work that may use the pool's memory. */
fallow_status flw_pool_await_device(struct flw_pool *pool);
/* The same beside captures too: each known stream by itself; the context only for a stream that cannot be
 * recorded on, and where blocks are in use still. CAPTURING: something was not waited for. */
fallow_status flw_pool_await_all(struct flw_pool *pool);
/* calls. The same for a pool that ends; a driver that refuses is asked again. False: work may be under way,
 * and nothing may be released. */
bool flw_pool_await_last(struct flw_pool *pool);

#endif
