/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/notes.h"

#include "pool/state/pool.h"

#define FIRST_BUCKETS_LOG2 10

/* Only where there are buckets. */
static struct flw_note **bucket_of(const struct flw_pool *pool, uint64_t address)
{
    return &pool->notes
                .buckets[((address >> 8) * 0x9E3779B97F4A7C15ull) >> (64 - pool->notes.log2)];
}

/* Twice the buckets; the old ones are lost until the pool goes, no more memory than the new.
 * Without host memory it stays as it is, and only gets slower. All notes are moved under the lock:
 * one announcement among as many as there are notes makes others wait. */
static void widen(struct flw_pool *pool)
{
    uint32_t log2 = pool->notes.log2 == 0 ? FIRST_BUCKETS_LOG2 : pool->notes.log2 + 1;
    uint64_t old_count = pool->notes.log2 == 0 ? 0 : 1ull << pool->notes.log2;
    struct flw_note **old = pool->notes.buckets;
    struct flw_note **notes = flw_meta_extend(&pool->notes.meta, sizeof *notes << log2, 8);
    if (notes == NULL) {
        return;
    }
    pool->notes.buckets = notes;
    pool->notes.log2 = log2;
    for (uint64_t i = 0; i < old_count; i++) {
        for (struct flw_note *note = old[i], *next; note != NULL; note = next) {
            struct flw_note **bucket = bucket_of(pool, note->address);
            next = note->next;
            note->next = *bucket;
            *bucket = note;
        }
    }
}

struct flw_note *flw_note_find(struct flw_pool *pool, uint64_t address)
{
    struct flw_note *note = pool->notes.log2 == 0 ? NULL : *bucket_of(pool, address);
    while (note != NULL && note->address != address) {
        note = note->next;
    }
    return note;
}

struct flw_note *flw_note_make(struct flw_pool *pool, uint64_t address)
{
    struct flw_note *note = flw_note_find(pool, address);
    if (note != NULL) {
        return note;
    }
    if (pool->notes.log2 == 0 || pool->notes.count >> pool->notes.log2 != 0) {
        widen(pool);
    }
    if (pool->notes.log2 == 0) {
        return NULL;
    }
    note = pool->notes.unused;
    if (note != NULL) {
        pool->notes.unused = note->next;
    } else {
        note = flw_meta_extend(&pool->notes.meta, sizeof *note, 8);
    }
    if (note != NULL) {
        struct flw_note **bucket = bucket_of(pool, address);
        *note = (struct flw_note){.next = *bucket, .address = address};
        *bucket = note;
        pool->notes.count++;
    }
    return note;
}

bool flw_note_take(struct flw_pool *pool, uint64_t address, struct flw_note *out_note)
{
    bool is_found = false;
    flw_lock_acquire(&pool->notes.lock);
    struct flw_note *none = NULL;
    struct flw_note **link = pool->notes.log2 == 0 ? &none : bucket_of(pool, address);
    for (; *link != NULL; link = &(*link)->next) {
        struct flw_note *note = *link;
        if (note->address == address) {
            *out_note = *note;
            *link = note->next;
            note->next = pool->notes.unused;
            pool->notes.unused = note;
            pool->notes.count--;
            is_found = true;
            break;
        }
    }
    flw_lock_release(&pool->notes.lock);
    return is_found;
}
