/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch_model.h"

#include <string.h>

#include "base/bits.h"

#include "tool_host.h"

#define ROUND_BYTES         512ull
#define SMALL_LIMIT_BYTES   (1 * FLW_MIB) /* requests up to here come from the small pool */
#define SMALL_SEGMENT_BYTES (2 * FLW_MIB)
#define LARGE_SEGMENT_BYTES (20 * FLW_MIB)
#define LARGE_LIMIT_BYTES \
    (10 * FLW_MIB) /* requests from here on get a segment of their own size \
                    */
#define LARGE_ROUND_BYTES (2 * FLW_MIB)
#define CHUNK_COUNT       512

struct flw_pytorch_segment {
    struct flw_pytorch_segment *previous, *next;
    struct flw_pytorch_block *first;
    uint64_t address;
    uint64_t device_address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large;
};

struct free_entry {
    uint64_t size_bytes;
    uint64_t address;
    struct flw_pytorch_block *block;
    uint16_t stream;
};

/* Free blocks, sorted by (stream, size, address). */
struct free_list {
    struct free_entry *entries;
    size_t count, capacity;
};

struct chunk {
    struct chunk *next;
    struct flw_pytorch_block blocks[CHUNK_COUNT];
};

struct flw_pytorch_model {
    struct flw_pytorch_source source;
    struct free_list lists[2]; /* [is_large] */
    struct flw_pytorch_segment *segments;
    struct chunk *chunks;
    struct flw_pytorch_block *spares; /* linked by next */
    uint64_t reserved_bytes;
};

static uint64_t round_size(uint64_t size_bytes)
{
    return size_bytes < ROUND_BYTES ? ROUND_BYTES : flw_align_up(size_bytes, ROUND_BYTES);
}

static uint64_t segment_bytes_for(uint64_t rounded_bytes)
{
    if (rounded_bytes <= SMALL_LIMIT_BYTES) {
        return SMALL_SEGMENT_BYTES;
    }
    if (rounded_bytes < LARGE_LIMIT_BYTES) {
        return LARGE_SEGMENT_BYTES;
    }
    return flw_align_up(rounded_bytes, LARGE_ROUND_BYTES);
}

static bool is_worth_a_split(bool is_large, uint64_t remaining_bytes)
{
    return is_large ? remaining_bytes > SMALL_LIMIT_BYTES : remaining_bytes >= ROUND_BYTES;
}

/* --- free lists ------------------------------------------------------------------------------- */

static bool is_before(const struct free_entry *a, uint16_t stream, uint64_t size_bytes,
                      uint64_t address)
{
    if (a->stream != stream) {
        return a->stream < stream;
    }
    return a->size_bytes != size_bytes ? a->size_bytes < size_bytes : a->address < address;
}

/* First entry not before (stream, size, address). */
static size_t lower_bound(const struct free_list *list, uint16_t stream, uint64_t size_bytes,
                          uint64_t address)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(&list->entries[middle], stream, size_bytes, address)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool ensure_room(struct free_list *list)
{
    if (list->count < list->capacity) {
        return true;
    }
    size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
    struct free_entry *entries = flw_host_alloc(capacity, sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    if (list->count != 0) {
        memcpy(entries, list->entries, list->count * sizeof *entries);
    }
    flw_host_free(list->entries, list->capacity, sizeof *entries);
    list->entries = entries;
    list->capacity = capacity;
    return true;
}

static struct free_list *list_of(struct flw_pytorch_model *model,
                                 const struct flw_pytorch_block *block)
{
    return &model->lists[block->segment->is_large];
}

static void list_remove_at(struct free_list *list, size_t i)
{
    list->count--;
    memmove(&list->entries[i], &list->entries[i + 1], (list->count - i) * sizeof *list->entries);
}

static void list_remove(struct flw_pytorch_model *model, const struct flw_pytorch_block *block)
{
    struct free_list *list = list_of(model, block);
    list_remove_at(list,
                   lower_bound(list, block->segment->stream, block->size_bytes, block->address));
}

/* There is room: every block that can become free has been counted when it was made. */
static void list_insert(struct flw_pytorch_model *model, struct flw_pytorch_block *block)
{
    struct free_list *list = list_of(model, block);
    size_t i = lower_bound(list, block->segment->stream, block->size_bytes, block->address);
    memmove(&list->entries[i + 1], &list->entries[i], (list->count - i) * sizeof *list->entries);
    list->entries[i] = (struct free_entry){.size_bytes = block->size_bytes,
                                           .address = block->address,
                                           .block = block,
                                           .stream = block->segment->stream};
    list->count++;
    block->is_free = true;
}

/* --- blocks and segments ------------------------------------------------------------------------
 */

static struct flw_pytorch_block *take_block(struct flw_pytorch_model *model)
{
    if (model->spares == NULL) {
        struct chunk *chunk = flw_host_alloc(1, sizeof *chunk);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = model->chunks;
        model->chunks = chunk;
        for (size_t i = CHUNK_COUNT; i-- > 0;) {
            chunk->blocks[i].next = model->spares;
            model->spares = &chunk->blocks[i];
        }
    }
    struct flw_pytorch_block *block = model->spares;
    model->spares = block->next;
    *block = (struct flw_pytorch_block){0};
    return block;
}

static void drop_block(struct flw_pytorch_model *model, struct flw_pytorch_block *block)
{
    block->next = model->spares;
    model->spares = block;
}

/* A segment that is one block, neither free nor lent. */
static struct flw_pytorch_segment *add_segment(struct flw_pytorch_model *model, uint64_t size_bytes,
                                               uint16_t stream, bool is_large)
{
    struct flw_pytorch_place place = {0};
    struct flw_pytorch_segment *segment = flw_host_alloc(1, sizeof *segment);
    struct flw_pytorch_block *block = take_block(model);
    if (segment == NULL || block == NULL ||
        !model->source.alloc(model->source.context, size_bytes, &place)) {
        goto fail;
    }
    *segment = (struct flw_pytorch_segment){.next = model->segments,
                                            .first = block,
                                            .address = place.address,
                                            .device_address = place.device_address,
                                            .size_bytes = size_bytes,
                                            .stream = stream,
                                            .is_large = is_large};
    if (segment->next != NULL) {
        segment->next->previous = segment;
    }
    model->segments = segment;
    model->reserved_bytes += size_bytes;
    block->address = place.address;
    block->size_bytes = size_bytes;
    block->segment = segment;
    return segment;
fail:
    if (block != NULL) {
        drop_block(model, block);
    }
    flw_host_free(segment, 1, sizeof *segment);
    return NULL;
}

/* Its only block is in no list any more. */
static void drop_segment(struct flw_pytorch_model *model, struct flw_pytorch_segment *segment)
{
    if (segment->previous != NULL) {
        segment->previous->next = segment->next;
    } else {
        model->segments = segment->next;
    }
    if (segment->next != NULL) {
        segment->next->previous = segment->previous;
    }
    model->reserved_bytes -= segment->size_bytes;
    model->source.free(model->source.context, segment->device_address, segment->size_bytes);
    flw_host_free(segment, 1, sizeof *segment);
}

/* Cut a block after `size_bytes`. NULL: no host memory, nothing changed. */
static struct flw_pytorch_block *cut(struct flw_pytorch_model *model,
                                     struct flw_pytorch_block *block, uint64_t size_bytes)
{
    struct flw_pytorch_block *rest = take_block(model);
    if (rest == NULL) {
        return NULL;
    }
    *rest = (struct flw_pytorch_block){.address = block->address + size_bytes,
                                       .size_bytes = block->size_bytes - size_bytes,
                                       .previous = block,
                                       .next = block->next,
                                       .segment = block->segment};
    if (rest->next != NULL) {
        rest->next->previous = rest;
    }
    block->next = rest;
    block->size_bytes = size_bytes;
    return rest;
}

/* `right` disappears into its left neighbour. */
static void join(struct flw_pytorch_model *model, struct flw_pytorch_block *left,
                 struct flw_pytorch_block *right)
{
    left->size_bytes += right->size_bytes;
    left->next = right->next;
    if (left->next != NULL) {
        left->next->previous = left;
    }
    drop_block(model, right);
}

/* --- the policy ------------------------------------------------------------------------------ */

static struct flw_pytorch_block *take_best_fit(struct flw_pytorch_model *model, bool is_large,
                                               uint64_t rounded_bytes, uint16_t stream)
{
    struct free_list *list = &model->lists[is_large];
    size_t i = lower_bound(list, stream, rounded_bytes, 0);
    if (i == list->count || list->entries[i].stream != stream) {
        return NULL;
    }
    struct flw_pytorch_block *block = list->entries[i].block;
    list_remove_at(list, i);
    block->is_free = false;
    return block;
}

static struct flw_pytorch_block *take_new_segment(struct flw_pytorch_model *model, bool is_large,
                                                  uint64_t rounded_bytes, uint16_t stream)
{
    uint64_t bytes = segment_bytes_for(rounded_bytes);
    struct flw_pytorch_segment *segment = add_segment(model, bytes, stream, is_large);
    if (segment == NULL) {
        flw_pytorch_release_cached(model);
        segment = add_segment(model, bytes, stream, is_large);
    }
    return segment == NULL ? NULL : segment->first;
}

struct flw_pytorch_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream)
{
    if (size_bytes > UINT64_MAX / 2) {
        return NULL;
    }
    uint64_t rounded_bytes = round_size(size_bytes);
    bool is_large = rounded_bytes > SMALL_LIMIT_BYTES;
    if (!ensure_room(&model->lists[is_large])) {
        return NULL;
    }
    struct flw_pytorch_block *block = take_best_fit(model, is_large, rounded_bytes, stream);
    if (block == NULL) {
        block = take_new_segment(model, is_large, rounded_bytes, stream);
    }
    if (block != NULL && is_worth_a_split(is_large, block->size_bytes - rounded_bytes)) {
        struct flw_pytorch_block *rest = cut(model, block, rounded_bytes);
        if (rest != NULL) {
            list_insert(model, rest);
        }
    }
    return block;
}

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_pytorch_block *block)
{
    struct flw_pytorch_block *previous = block->previous;
    struct flw_pytorch_block *next = block->next;
    if (!ensure_room(list_of(model, block))) {
        return; /* leaked inside the model; the host is out of memory */
    }
    if (next != NULL && next->is_free) {
        list_remove(model, next);
        join(model, block, next);
    }
    if (previous != NULL && previous->is_free) {
        list_remove(model, previous);
        join(model, previous, block);
        block = previous;
    }
    list_insert(model, block);
}

void flw_pytorch_release_cached(struct flw_pytorch_model *model)
{
    if (model->source.drain != NULL) {
        model->source.drain(model->source.context);
    }
    for (size_t pool = 2; pool-- > 0;) { /* the large pool first */
        struct free_list *list = &model->lists[pool];
        size_t kept = 0;
        for (size_t i = 0; i < list->count; i++) {
            struct flw_pytorch_block *block = list->entries[i].block;
            if (block->previous == NULL && block->next == NULL) {
                drop_segment(model, block->segment);
                drop_block(model, block);
            } else {
                list->entries[kept++] = list->entries[i];
            }
        }
        list->count = kept;
    }
}

/* --- seeds -------------------------------------------------------------------------------------
 */

/* How many bytes the i-th live block of a seed holds: a tail that the policy would not have split
 * off belongs to it. 0: it does not fit. */
static uint64_t seed_block_bytes(const struct flw_pytorch_seed *seed, size_t i)
{
    uint64_t begin = seed->block_addresses[i];
    uint64_t end =
        i + 1 < seed->block_count ? seed->block_addresses[i + 1] : seed->address + seed->size_bytes;
    if (begin < seed->address || end < begin || seed->block_bytes[i] > seed->size_bytes) {
        return 0;
    }
    uint64_t rounded_bytes = round_size(seed->block_bytes[i]);
    uint64_t room_bytes = end - begin;
    if (rounded_bytes > room_bytes) {
        return 0;
    }
    return is_worth_a_split(seed->is_large, room_bytes - rounded_bytes) ? rounded_bytes
                                                                        : room_bytes;
}

static bool seed_fits(const struct flw_pytorch_seed *seed)
{
    for (size_t i = 0; i < seed->block_count; i++) {
        if (seed_block_bytes(seed, i) == 0) {
            return false;
        }
    }
    return seed->size_bytes != 0;
}

static bool add_hole(struct flw_pytorch_model *model, struct flw_pytorch_block *hole)
{
    if (!ensure_room(list_of(model, hole))) {
        return false;
    }
    list_insert(model, hole);
    return true;
}

bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_pytorch_block **out_blocks)
{
    if (!seed_fits(seed)) {
        return false;
    }
    struct flw_pytorch_segment *segment =
        add_segment(model, seed->size_bytes, seed->stream, seed->is_large);
    if (segment == NULL) {
        return false;
    }
    segment->address = seed->address;
    segment->first->address = seed->address;
    struct flw_pytorch_block *rest = segment->first; /* behind the last block; NULL: nothing is */
    for (size_t i = 0; i < seed->block_count; i++) {
        struct flw_pytorch_block *block = rest;
        if (block != NULL && block->address < seed->block_addresses[i]) {
            block = cut(model, rest, seed->block_addresses[i] - rest->address);
            if (block == NULL || !add_hole(model, rest)) {
                return false;
            }
        }
        if (block == NULL) {
            return false;
        }
        uint64_t bytes = seed_block_bytes(seed, i);
        bool is_exact = block->size_bytes <= bytes;
        out_blocks[i] = block;
        rest = is_exact ? NULL : cut(model, block, bytes);
        if (rest == NULL && !is_exact) {
            return false;
        }
    }
    return rest == NULL || add_hole(model, rest);
}

/* --- life ---------------------------------------------------------------------------------------
 */

struct flw_pytorch_model *flw_pytorch_create(const struct flw_pytorch_source *source)
{
    struct flw_pytorch_model *model = flw_host_alloc(1, sizeof *model);
    if (model != NULL) {
        model->source = *source;
    }
    return model;
}

void flw_pytorch_destroy(struct flw_pytorch_model *model)
{
    if (model == NULL) {
        return;
    }
    while (model->segments != NULL) {
        drop_segment(model, model->segments);
    }
    while (model->chunks != NULL) {
        struct chunk *next = model->chunks->next;
        flw_host_free(model->chunks, 1, sizeof *model->chunks);
        model->chunks = next;
    }
    for (size_t pool = 0; pool < 2; pool++) {
        flw_host_free(model->lists[pool].entries, model->lists[pool].capacity,
                      sizeof(struct free_entry));
    }
    flw_host_free(model, 1, sizeof *model);
}

uint64_t flw_pytorch_device_address(const struct flw_pytorch_block *block)
{
    return block->segment->device_address + (block->address - block->segment->address);
}

uint64_t flw_pytorch_reserved_bytes(const struct flw_pytorch_model *model)
{
    return model->reserved_bytes;
}

static bool list_is_valid(const struct free_list *list, size_t expected_count)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct free_entry *entry = &list->entries[i];
        if (!entry->block->is_free || entry->block->size_bytes != entry->size_bytes ||
            entry->block->address != entry->address) {
            return false;
        }
        if (i > 0 && !is_before(entry - 1, entry->stream, entry->size_bytes, entry->address)) {
            return false;
        }
    }
    return list->count == expected_count;
}

bool flw_pytorch_is_valid(const struct flw_pytorch_model *model)
{
    uint64_t reserved_bytes = 0;
    size_t free_counts[2] = {0, 0};
    for (const struct flw_pytorch_segment *segment = model->segments; segment != NULL;
         segment = segment->next) {
        uint64_t at = segment->address;
        const struct flw_pytorch_block *previous = NULL;
        for (const struct flw_pytorch_block *block = segment->first; block != NULL;
             block = block->next) {
            bool are_both_free = previous != NULL && previous->is_free && block->is_free;
            if (block->address != at || block->previous != previous || block->segment != segment ||
                are_both_free) {
                return false;
            }
            free_counts[segment->is_large] += block->is_free;
            at += block->size_bytes;
            previous = block;
        }
        if (at != segment->address + segment->size_bytes) {
            return false;
        }
        reserved_bytes += segment->size_bytes;
    }
    return reserved_bytes == model->reserved_bytes &&
           list_is_valid(&model->lists[0], free_counts[0]) &&
           list_is_valid(&model->lists[1], free_counts[1]);
}
