/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/ladder/owners.h"

#include <string.h>

#include "base/random.h"
#include "pool/state/blocks.h"

#define FEW_ENTRIES  128u   /* on the stack: needs no host memory */
#define MANY_ENTRIES 65536u /* in host memory, where there is some */

struct owner_entry {
    fallow_oom_owner owner;
    uint64_t hash;
    uint32_t next; /* in its bucket: 1 + index; 0: none */
};

/* Sums of one walk.
 * INVARIANT  every owner with a hash in [first_hash, last_hash] and a visited block has an entry, the sum of all
 * visited blocks of the owner; no other owner has an entry. */
struct owner_table {
    struct owner_entry *entries;
    uint32_t *buckets; /* as many as entries; 1 + index, 0: empty */
    uint32_t capacity; /* a power of two */
    uint32_t count;
    uint64_t first_hash, last_hash;
    struct owner_entry *last; /* of the block before; NULL: none */
};

static uint64_t hash_of(uint32_t tag, uint64_t stream_id)
{
    uint64_t state = stream_id ^ (uint64_t)tag << 32 ^ tag;
    return flw_random_next(&state);
}

static bool is_owner(const fallow_oom_owner *owner, uint32_t tag, uint64_t stream_id)
{
    return owner->tag == tag && owner->stream_id == stream_id;
}

static uint32_t *bucket_of(const struct owner_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->capacity - 1)];
}

static struct owner_entry *append(struct owner_table *table, const struct owner_entry *entry)
{
    struct owner_entry *added = &table->entries[table->count++];
    uint32_t *bucket = bucket_of(table, entry->hash);
    *added = *entry;
    added->next = *bucket;
    *bucket = table->count;
    return added;
}

static void clear(struct owner_table *table)
{
    memset(table->buckets, 0, table->capacity * sizeof *table->buckets);
    table->count = 0;
    table->last = NULL;
}

/* Leave the upper half of the hashes to the next walk. */
static void halve(struct owner_table *table)
{
    uint32_t count = table->count;
    table->last_hash = table->first_hash + (table->last_hash - table->first_hash) / 2;
    clear(table);
    for (uint32_t i = 0; i < count; i++) { /* an entry moves to a lower place or stays */
        struct owner_entry entry = table->entries[i];
        if (entry.hash <= table->last_hash) {
            (void)append(table, &entry);
        }
    }
}

/* NULL: another walk counts this owner. */
static struct owner_entry *find(struct owner_table *table, uint32_t tag, uint64_t stream_id)
{
    uint64_t hash = hash_of(tag, stream_id);
    while (hash >= table->first_hash && hash <= table->last_hash) {
        for (uint32_t i = *bucket_of(table, hash); i != 0; i = table->entries[i - 1].next) {
            if (is_owner(&table->entries[i - 1].owner, tag, stream_id)) {
                return &table->entries[i - 1];
            }
        }
        if (table->count < table->capacity) {
            struct owner_entry entry = {{.tag = tag, .stream_id = stream_id}, hash, 0};
            return append(table, &entry);
        }
        if (table->first_hash == table->last_hash) {
            return NULL; /* owners of one hash fill the table; further owners are not counted */
        }
        halve(table);
    }
    return NULL;
}

static void add_block(void *context, const struct flw_live_block *block)
{
    struct owner_table *table = context;
    struct owner_entry *entry = table->last;
    if (entry == NULL || !is_owner(&entry->owner, block->tag, block->stream_id)) {
        entry = find(table, block->tag, block->stream_id);
    }
    if (entry != NULL) {
        entry->owner.bytes += block->size_bytes;
        entry->owner.count++;
        table->last = entry;
    }
}

/* Insert in order of bytes, if the owner is among the largest. */
static void add_owner(fallow_oom_report *report, const fallow_oom_owner *owner)
{
    uint32_t at = report->owner_count;
    if (at == FALLOW_OOM_OWNERS && owner->bytes <= report->owners[at - 1].bytes) {
        return;
    }
    at -= at == FALLOW_OOM_OWNERS;
    for (; at > 0 && owner->bytes > report->owners[at - 1].bytes; at--) {
        report->owners[at] = report->owners[at - 1];
    }
    report->owners[at] = *owner;
    report->owner_count += report->owner_count < FALLOW_OOM_OWNERS;
}

static void walk_all(struct flw_pool *pool, struct owner_table *table, fallow_oom_report *report)
{
    table->first_hash = 0;
    do {
        table->last_hash = UINT64_MAX;
        clear(table);
        flw_blocks_each(pool, add_block, table);
        for (uint32_t i = 0; i < table->count; i++) {
            add_owner(report, &table->entries[i].owner);
        }
        table->first_hash = table->last_hash + 1;
    } while (table->last_hash != UINT64_MAX);
}

static void walk_with_few(struct flw_pool *pool, fallow_oom_report *report)
{
    struct owner_entry entries[FEW_ENTRIES];
    uint32_t buckets[FEW_ENTRIES];
    struct owner_table table = {.entries = entries, .buckets = buckets, .capacity = FEW_ENTRIES};
    walk_all(pool, &table, report);
}

void flw_owners_fill(struct flw_pool *pool, fallow_oom_report *report)
{
    struct flw_meta memory;
    const uint64_t entry_bytes = MANY_ENTRIES * sizeof(struct owner_entry);
    report->owner_count = 0;
    if (!flw_meta_reserve(&memory, entry_bytes + MANY_ENTRIES * sizeof(uint32_t)) ||
        !flw_meta_open(&memory)) {
        flw_meta_release(&memory);
        walk_with_few(pool, report);
        return;
    }
    struct owner_table table = {.entries = (struct owner_entry *)(void *)memory.base,
                                .buckets = (uint32_t *)(void *)(memory.base + entry_bytes),
                                .capacity = MANY_ENTRIES};
    walk_all(pool, &table, report);
    flw_meta_release(&memory);
}
