/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: announced uses: from the announcement to the free that waits for them; fences for them,
 * and for all. */
#ifndef FLW_POOL_STREAMS_USES_H
#define FLW_POOL_STREAMS_USES_H

#include "pool/state/side_records.h"

/* Free a block that has announced uses: deferred until they are complete. */
fallow_status flw_uses_free(struct flw_pool *pool, struct flw_domain *domain, struct flw_slot *slot,
                            const struct flw_side_record *side);
/* Announce a use of a live (raw) block on a domain's stream. INVALID_POINTER: it is not live. */
fallow_status flw_uses_announce(struct flw_pool *pool, uint64_t address, uint32_t domain);
/* Announce that any work of the pool's context may use a live block, because the following free
 * names no stream. */
fallow_status flw_uses_announce_context(struct flw_pool *pool, void *ptr);
/* The same for a domain's stream, which may be destroyed; `ptr` is the program's address of the
 * block. */
fallow_status flw_uses_announce_of(struct flw_pool *pool, void *ptr, uint32_t domain);
/* True if uses of a live block were announced. */
bool flw_uses_has(struct flw_pool *pool, uint64_t address);
/* True for a run that importers may have. Takes the heap lock. */
bool flw_uses_is_exported(struct flw_pool *pool, const struct flw_span *span);
/* Fence every stream with announced uses that no fence covers yet. Makes driver calls. */
void flw_uses_fence(struct flw_pool *pool);
/* Return true if the fence of the stream's frees is left to the next free that misses, poll or
 * capture. A program often frees a block that the stream used right after one of the stream's own,
 * and the fence for that use covers both. (Only in balanced pools: speed first, which never waits,
 * and memory first need fences as early as possible.) Fences left before may be recorded: makes
 * driver calls. */
bool flw_uses_fence_later(struct flw_pool *pool, struct flw_domain *domain);
/* Fence the streams left to later, unless a fence has covered them. Makes driver calls. */
void flw_uses_fence_late(struct flw_pool *pool);
/* Fence every stream that this thread can name. Makes driver calls. */
void flw_pool_fence_all(struct flw_pool *pool);

#endif
