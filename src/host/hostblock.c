/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hostblock.h"

#include "base/bits.h"

#define MOST_BLOCKS (1u << 26)

bool flw_blocks_init(struct flw_blocks *blocks)
{
    *blocks = (struct flw_blocks){0};
    if (flw_meta_reserve(&blocks->block_meta,
                         MOST_BLOCKS * (uint64_t)sizeof(struct flw_hostblock)) &&
        flw_meta_reserve(&blocks->use_meta, MOST_BLOCKS * (uint64_t)sizeof(struct flw_hostuse)) &&
        flw_meta_reserve(&blocks->bucket_meta, 2ull * MOST_BLOCKS * sizeof *blocks->buckets)) {
        blocks->buckets = flw_meta_extend(&blocks->bucket_meta, sizeof *blocks->buckets, 8);
    }
    if (blocks->buckets == NULL) {
        flw_blocks_finish(blocks);
        return false;
    }
    return true;
}

void flw_blocks_finish(struct flw_blocks *blocks)
{
    flw_meta_release(&blocks->bucket_meta);
    flw_meta_release(&blocks->use_meta);
    flw_meta_release(&blocks->block_meta);
    *blocks = (struct flw_blocks){0};
}

uint64_t flw_blocks_table_bytes(const struct flw_blocks *blocks)
{
    return blocks->block_meta.used_bytes + blocks->use_meta.used_bytes +
           blocks->bucket_meta.used_bytes;
}

/* ---- the table */

static uint32_t hash_of(const void *base)
{
    return (uint32_t)(((uintptr_t)base >> 6) * 0x9e3779b97f4a7c15ull >> 32);
}

static uint32_t bucket_of(const struct flw_blocks *blocks, const void *base)
{
    uint32_t hash = hash_of(base);
    uint32_t bucket = hash & ((1u << blocks->level) - 1);
    return bucket < blocks->split ? hash & ((2u << blocks->level) - 1) : bucket;
}

/* Split the next bucket's chain. Without memory for that, chains get longer. */
static void split_bucket(struct flw_blocks *blocks)
{
    struct flw_hostblock **fresh = flw_meta_extend(&blocks->bucket_meta, sizeof *fresh, 8);
    if (fresh == NULL) {
        return;
    }
    struct flw_hostblock **old = &blocks->buckets[blocks->split], *block = *old;
    uint32_t mask = (2u << blocks->level) - 1, number = (uint32_t)(fresh - blocks->buckets);
    *old = NULL;
    *fresh = NULL;
    while (block != NULL) {
        struct flw_hostblock *next = block->next;
        struct flw_hostblock **to = (hash_of(block->base) & mask) == number ? fresh : old;
        block->next = *to;
        *to = block;
        block = next;
    }
    if (++blocks->split == 1u << blocks->level) {
        blocks->split = 0;
        blocks->level++;
    }
}

struct flw_hostblock *flw_blocks_add(struct flw_blocks *blocks, void *base, uint64_t bytes)
{
    struct flw_hostblock *block = blocks->unused;
    if (block != NULL) {
        blocks->unused = block->next;
    } else {
        block = flw_meta_extend(&blocks->block_meta, sizeof *block, 16);
        if (block == NULL) {
            return NULL;
        }
    }
    struct flw_hostblock **bucket = &blocks->buckets[bucket_of(blocks, base)];
    *block = (struct flw_hostblock){.base = base, .bytes = bytes, .next = *bucket, .is_live = true};
    block->own.block = block;
    *bucket = block;
    if (++blocks->block_count > (1ull << blocks->level) + blocks->split) {
        split_bucket(blocks);
    }
    return block;
}

struct flw_hostblock *flw_blocks_find(const struct flw_blocks *blocks, const void *base)
{
    struct flw_hostblock *block = blocks->buckets[bucket_of(blocks, base)];
    while (block != NULL && block->base != base) {
        block = block->next;
    }
    return block;
}

void flw_blocks_remove(struct flw_blocks *blocks, struct flw_hostblock *block)
{
    struct flw_hostblock **link = &blocks->buckets[bucket_of(blocks, block->base)];
    while (*link != block) {
        link = &(*link)->next;
    }
    *link = block->next;
    block->next = NULL;
    block->is_returned = true;
    blocks->block_count--;
}

void flw_blocks_drop(struct flw_blocks *blocks, struct flw_hostblock *block)
{
    block->base = NULL;
    block->next = blocks->unused;
    blocks->unused = block;
}

/* ---- uses */

struct flw_hostuse *flw_blocks_new_use(struct flw_blocks *blocks)
{
    struct flw_hostuse *use = blocks->unused_uses;
    if (use != NULL) {
        blocks->unused_uses = use->next;
    } else {
        use = flw_meta_extend(&blocks->use_meta, sizeof *use, 8);
    }
    return use;
}

void flw_blocks_drop_use(struct flw_blocks *blocks, struct flw_hostuse *use)
{
    if (use != &use->block->own) {
        *use = (struct flw_hostuse){.next = blocks->unused_uses};
        blocks->unused_uses = use;
    }
}

/* ---- all blocks */

static uint64_t bucket_count(const struct flw_blocks *blocks)
{
    return (1ull << blocks->level) + blocks->split;
}

void flw_blocks_visit(const struct flw_blocks *blocks,
                      void (*visit)(void *context, const struct flw_hostblock *block),
                      void *context)
{
    for (uint64_t i = 0; i < bucket_count(blocks); i++) {
        for (const struct flw_hostblock *block = blocks->buckets[i]; block != NULL;
             block = block->next) {
            visit(context, block);
        }
    }
}

const char *flw_blocks_broken_invariant(const struct flw_blocks *blocks)
{
    uint64_t block_count = 0;
    if (bucket_count(blocks) * sizeof *blocks->buckets != blocks->bucket_meta.used_bytes ||
        blocks->split >= 1u << blocks->level) {
        return "the table has a wrong number of buckets";
    }
    for (uint64_t i = 0; i < bucket_count(blocks); i++) {
        for (const struct flw_hostblock *block = blocks->buckets[i]; block != NULL;
             block = block->next) {
            if (bucket_of(blocks, block->base) != i || block->is_returned) {
                return "a block is in a chain that is not its address's";
            }
            block_count++;
        }
    }
    return block_count != blocks->block_count ? "blocks are miscounted" : NULL;
}
