/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: announced uses: from the announcement to the free that waits for them; fences for them, and for all.
 */
#ifndef FLW_POOL_STREAMS_USES_H
#define FLW_POOL_STREAMS_USES_H

#include "pool/state/side_records.h"

/* Free a block that has announced uses: deferred until they are complete. */
fallow_status flw_uses_free(struct flw_pool *pool, struct flw_domain *domain, struct flw_slot *slot,
                            const struct flw_side_record *side);
/* Announce a use of a live (raw) block on a domain's stream. INVALID_POINTER: it is not live. */
fallow_status flw_uses_announce(struct flw_pool *pool, uint64_t address, uint32_t domain);
/* Announce that any work of the pool's context may use a live block, as the caller of the free that follows
 * names no stream. */
fallow_status flw_uses_announce_context(struct flw_pool *pool, void *ptr);
/* The same for a domain's stream, which may be destroyed; `ptr` is the block's address as the program has it. */
fallow_status flw_uses_announce_of(struct flw_pool *pool, void *ptr, uint32_t domain);
/* Were uses of a live block announced? */
bool flw_uses_has(struct flw_pool *pool, uint64_t address);
/* Is it a run that importers may have? Takes the heap lock. */
bool flw_uses_is_exported(struct flw_pool *pool, const struct flw_span *span);
/* Fence every stream with announced uses that nothing covers yet. Driver calls. */
void flw_uses_fence(struct flw_pool *pool);
/* May the fence of what the stream has freed be left to the next free that is no hit, poll or capture? A program often
 * frees a block that the stream used right behind one of the stream's own, and the fence for that use covers both. True:
 * it is noted. (Balanced pools alone: speed first, which never waits, and memory first want all as soon as can be.)
 * Driver calls: of what was noted before. */
bool flw_uses_fence_later(struct flw_pool *pool, struct flw_domain *domain);
/* What was noted is fenced now, unless something has covered it. Driver calls. */
void flw_uses_fence_late(struct flw_pool *pool);
/* Fence every stream that this thread can name. Driver calls. */
void flw_pool_fence_all(struct flw_pool *pool);

#endif
