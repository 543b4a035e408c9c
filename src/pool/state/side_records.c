/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/side_records.h"

#include "pool/state/pool.h"

#define FIRST_BUCKETS_LOG2 10

/* Requires buckets. */
static struct flw_side_record **bucket_of(const struct flw_pool *pool, uint64_t address)
{
    return &pool->side_records.buckets[((address >> 8) * 0x9E3779B97F4A7C15ull) >>
                                       (64 - pool->side_records.log2)];
}

/* Double the buckets; the old ones are lost until the pool ends, no more memory than the new ones.
 * Without host memory the table stays as it is, only slower. All side records are moved under the
 * lock: one announcement among as many as there are records makes others wait. */
static void widen(struct flw_pool *pool)
{
    uint32_t log2 = pool->side_records.log2 == 0 ? FIRST_BUCKETS_LOG2 : pool->side_records.log2 + 1;
    uint64_t old_count = pool->side_records.log2 == 0 ? 0 : 1ull << pool->side_records.log2;
    struct flw_side_record **old = pool->side_records.buckets;
    struct flw_side_record **side_records =
        flw_meta_extend(&pool->side_records.meta, sizeof *side_records << log2, 8);
    if (side_records == NULL) {
        return;
    }
    pool->side_records.buckets = side_records;
    pool->side_records.log2 = log2;
    for (uint64_t i = 0; i < old_count; i++) {
        for (struct flw_side_record *side = old[i], *next; side != NULL; side = next) {
            struct flw_side_record **bucket = bucket_of(pool, side->address);
            next = side->next;
            side->next = *bucket;
            *bucket = side;
        }
    }
}

struct flw_side_record *flw_side_record_find(struct flw_pool *pool, uint64_t address)
{
    struct flw_side_record *side = pool->side_records.log2 == 0 ? NULL : *bucket_of(pool, address);
    while (side != NULL && side->address != address) {
        side = side->next;
    }
    return side;
}

struct flw_side_record *flw_side_record_make(struct flw_pool *pool, uint64_t address)
{
    struct flw_side_record *side = flw_side_record_find(pool, address);
    if (side != NULL) {
        return side;
    }
    if (pool->side_records.log2 == 0 || pool->side_records.count >> pool->side_records.log2 != 0) {
        widen(pool);
    }
    if (pool->side_records.log2 == 0) {
        return NULL;
    }
    side = pool->side_records.unused;
    if (side != NULL) {
        pool->side_records.unused = side->next;
    } else {
        side = flw_meta_extend(&pool->side_records.meta, sizeof *side, 8);
    }
    if (side != NULL) {
        struct flw_side_record **bucket = bucket_of(pool, address);
        *side = (struct flw_side_record){.next = *bucket, .address = address};
        *bucket = side;
        pool->side_records.count++;
    }
    return side;
}

bool flw_side_record_take(struct flw_pool *pool, uint64_t address, struct flw_side_record *out_side)
{
    bool is_found = false;
    flw_lock_acquire(&pool->side_records.lock);
    struct flw_side_record *none = NULL;
    struct flw_side_record **link = pool->side_records.log2 == 0 ? &none : bucket_of(pool, address);
    for (; *link != NULL; link = &(*link)->next) {
        struct flw_side_record *side = *link;
        if (side->address == address) {
            *out_side = *side;
            *link = side->next;
            side->next = pool->side_records.unused;
            pool->side_records.unused = side;
            pool->side_records.count--;
            is_found = true;
            break;
        }
    }
    flw_lock_release(&pool->side_records.lock);
    return is_found;
}
