/* SPDX-License-Identifier: Apache-2.0 */
#include "support/overlap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_LOG2 21
#define CHUNKS     (1u << 18) /* of the table: 512 GiB of addresses ever used */

struct range {
    uint64_t begin, end;
};

struct chunk {
    _Atomic uint64_t number; /* 1 + address >> CHUNK_LOG2; 0: never used */
    atomic_flag lock;
    unsigned count, capacity;
    struct range *ranges;
};

struct flw_overlap {
    struct chunk chunks[CHUNKS];
};

struct flw_overlap *flw_overlap_create(void)
{
    struct flw_overlap *set = calloc(1, sizeof *set);
    if (set == NULL) {
        abort();
    }
    return set;
}

void flw_overlap_destroy(struct flw_overlap *set)
{
    for (unsigned i = 0; set != NULL && i < CHUNKS; i++) {
        free(set->chunks[i].ranges);
    }
    free(set);
}

static struct chunk *lock_chunk(struct flw_overlap *set, uint64_t number)
{
    uint64_t at = (number * 0x9E3779B97F4A7C15ull) >> 46;
    for (unsigned tried = 0; tried < CHUNKS; tried++, at = (at + 1) % CHUNKS) {
        struct chunk *chunk = &set->chunks[at];
        uint64_t seen = atomic_load_explicit(&chunk->number, memory_order_acquire);
        if (seen == 0 && atomic_compare_exchange_strong(&chunk->number, &seen, number)) {
            seen = number;
        }
        if (seen == number) {
            while (atomic_flag_test_and_set_explicit(&chunk->lock, memory_order_acquire)) {
            }
            return chunk;
        }
    }
    fprintf(stderr, "overlap: more than %u chunks of addresses; make the table larger\n", CHUNKS);
    abort();
}

static void unlock_chunk(struct chunk *chunk)
{
    atomic_flag_clear_explicit(&chunk->lock, memory_order_release);
}

static bool add(struct chunk *chunk, struct range range)
{
    for (unsigned i = 0; i < chunk->count; i++) {
        if (chunk->ranges[i].begin < range.end && range.begin < chunk->ranges[i].end) {
            fprintf(stderr, "overlap: [0x%llx, 0x%llx) is allocated while [0x%llx, 0x%llx) is\n",
                    (unsigned long long)range.begin, (unsigned long long)range.end,
                    (unsigned long long)chunk->ranges[i].begin,
                    (unsigned long long)chunk->ranges[i].end);
            return false;
        }
    }
    if (chunk->count == chunk->capacity) {
        unsigned capacity = chunk->capacity == 0 ? 8 : 2 * chunk->capacity;
        struct range *ranges = realloc(chunk->ranges, capacity * sizeof *ranges);
        if (ranges == NULL) {
            abort();
        }
        chunk->ranges = ranges;
        chunk->capacity = capacity;
    }
    chunk->ranges[chunk->count++] = range;
    return true;
}

static void take_out(struct chunk *chunk, uint64_t begin)
{
    for (unsigned i = 0; i < chunk->count; i++) {
        if (chunk->ranges[i].begin == begin) {
            chunk->ranges[i] = chunk->ranges[--chunk->count];
            return;
        }
    }
    fprintf(stderr, "overlap: 0x%llx was never claimed: the test itself is wrong\n",
            (unsigned long long)begin);
    abort();
}

bool flw_overlap_claim(struct flw_overlap *set, uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    for (uint64_t at = address; at < end;) {
        uint64_t next = ((at >> CHUNK_LOG2) + 1) << CHUNK_LOG2;
        struct chunk *chunk = lock_chunk(set, 1 + (at >> CHUNK_LOG2));
        bool is_new = add(chunk, (struct range){at, next < end ? next : end});
        unlock_chunk(chunk);
        if (!is_new) {
            return false;
        }
        at = next;
    }
    return true;
}

void flw_overlap_release(struct flw_overlap *set, uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    for (uint64_t at = address; at < end;) {
        struct chunk *chunk = lock_chunk(set, 1 + (at >> CHUNK_LOG2));
        take_out(chunk, at);
        unlock_chunk(chunk);
        at = ((at >> CHUNK_LOG2) + 1) << CHUNK_LOG2;
    }
}
