/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the pool knows of single blocks beyond their slot: announced uses and tags.
 * Synchronization of notes: the pool's uses_lock.
 */
#ifndef FLW_POOL_USES_H
#define FLW_POOL_USES_H

#include "heap/heap.h"

struct flw_pool;

/* A block's side notes: announced uses and a tag. Most blocks have none. */
struct flw_note {
    struct flw_note *next; /* in its bucket, or unused */
    uint64_t address;
    uint32_t tag;
    uint32_t flags; /* FALLOW_REQUEST_ bits */
    uint32_t stamp_count;
    bool overflowed; /* more streams than fit: all are asked */
    uint32_t domains[FLW_STAMPS_MAX];
};

static inline bool flw_note_has_uses(const struct flw_note *note)
{
    return note->stamp_count > 0 || note->overflowed;
}

/* uses_lock. The note of a block; NULL: it has none. */
struct flw_note *flw_note_find(struct flw_pool *pool, uint64_t address);
/* uses_lock. The same, made where there is none; NULL: host memory. */
struct flw_note *flw_note_make(struct flw_pool *pool, uint64_t address);
/* Takes uses_lock. The note, if there is one, is no more; *out_note is what it said. */
bool flw_note_take(struct flw_pool *pool, uint64_t address, struct flw_note *out_note);
/* Free a block that has announced uses: pending until they are complete. */
fallow_status flw_uses_free(struct flw_pool *pool, struct flw_domain *domain, struct flw_slot *slot,
                            const struct flw_note *note);
/* Announce a use of a live (raw) block on a domain's stream. INVALID_POINTER: it is not live. */
fallow_status flw_uses_announce(struct flw_pool *pool, uint64_t address, uint32_t domain);
/* Were uses of a live block announced? */
bool flw_uses_has(struct flw_pool *pool, uint64_t address);
/* Is it a run that importers may have? Takes the heap lock. */
bool flw_uses_is_exported(struct flw_pool *pool, const struct flw_span *span);
/* Fence every stream with announced uses that nothing covers yet. Driver calls. */
void flw_uses_fence(struct flw_pool *pool);
/* Fence every stream that this thread can name. Driver calls. */
void flw_pool_fence_all(struct flw_pool *pool);

#endif
