/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: waiting for all work that ever used the pool's memory, before the memory is unmapped for a
 * sleep or for good: work on the pool's streams, of other contexts, on freed and on live blocks;
 * and the queries for captures before every synchronisation, which would end a capture.
 * Does not: wait for peers and importers. */
#ifndef FLW_POOL_STREAMS_QUIESCE_H
#define FLW_POOL_STREAMS_QUIESCE_H

#include "pool/state/pool.h"

/* Synchronise the context, if a lost stream has memory that no fence covers, or (wants_place) only
 * a place, and nothing is being captured. True: it is complete now. Makes driver calls. */
bool flw_pool_sync_uncoverable(struct flw_pool *pool, bool wants_place);
/* For memory of lost streams, once 64 MiB, or 64 streams and a 16th of the tracked streams, were
 * lost, or with `wants_all`: record an event behind all work of the context, if nothing is being
 * captured, without a wait. Without cuCtxRecordEvent synchronise as above, if the caller may wait.
 * Makes driver calls. */
void flw_pool_cover_lost(struct flw_pool *pool, bool wants_all, bool may_wait);
/* True if the stream can be named and is being captured. Makes driver calls. */
bool flw_pool_is_capturing(struct flw_pool *pool, struct flw_domain *domain);
/* OK: no stream that can be named is being captured. CAPTURING; DRIVER: unknown. Makes driver
 * calls. */
fallow_status flw_pool_ask_captures(struct flw_pool *pool);
/* True if a stream that waits for the legacy stream is being captured, including streams that the
 * pool has never seen. */
bool flw_pool_is_blocking_capturing(struct flw_pool *pool);

/* Wait for all work that may use the pool's memory, in a driver section. */
fallow_status flw_pool_await_device(struct flw_pool *pool);
/* The same during captures: each known stream by itself; the context only for a stream that cannot
 * be recorded on, and if blocks are still in use. CAPTURING: something was not waited for. */
fallow_status flw_pool_await_all(struct flw_pool *pool);
/* The same at the end of a pool, with retries. False: work may be under way, and nothing may be
 * released. Makes driver calls. */
bool flw_pool_await_last(struct flw_pool *pool);

#endif
