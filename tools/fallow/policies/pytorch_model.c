/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_model.h"

#include "base/bits.h"

#include "common/tool_host.h"
#include "policies/pytorch_expand.h"

#define ROUND_BYTES         512ull
#define SMALL_LIMIT_BYTES   (1 * FLW_MIB) /* requests up to here come from the small pool */
#define SMALL_SEGMENT_BYTES (2 * FLW_MIB)
#define LARGE_SEGMENT_BYTES (20 * FLW_MIB)
#define LARGE_LIMIT_BYTES   (10 * FLW_MIB) /* requests from here on get a segment of their own size */
#define LARGE_ROUND_BYTES   (2 * FLW_MIB)
#define SPARE_LIMIT_BYTES   (20 * FLW_MIB) /* so much more a block that is not split may be */

enum pool {
    SMALL,
    LARGE
};

struct flw_pytorch_model {
    struct flw_pytorch_source source;
    struct flw_pytorch_settings settings;
    struct flw_segheap heap;
    struct flw_pytorch_expand expand;
    uint64_t now[FLW_SEGHEAP_POOLS]; /* requests so far: what a free block's age is measured in */
};

const struct flw_pytorch_settings flw_pytorch_standard = {.max_split_bytes = UINT64_MAX,
                                                          .roundup_divisions = 1,
                                                          .collect_bytes = UINT64_MAX,
                                                          .first_private = UINT16_MAX};

/* ---- sizes ---- */

static uint64_t round_size(const struct flw_pytorch_model *model, uint64_t size_bytes)
{
    uint64_t divisions = model->settings.roundup_divisions;
    if (size_bytes < ROUND_BYTES) {
        return ROUND_BYTES;
    }
    if (divisions > 1 && size_bytes > ROUND_BYTES * divisions) {
        uint64_t step_bytes = (1ull << flw_log2_floor(size_bytes)) / divisions;
        return flw_align_up(size_bytes, step_bytes);
    }
    return flw_align_up(size_bytes, ROUND_BYTES);
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

static bool is_whole_segment(const struct flw_segheap_block *block)
{
    return block->previous == NULL && block->next == NULL;
}

/* Of a block of a plain segment. */
static bool is_worth_a_split(uint8_t pool, uint64_t remaining_bytes)
{
    return pool == SMALL ? remaining_bytes >= ROUND_BYTES : remaining_bytes > SMALL_LIMIT_BYTES;
}

static bool should_split(const struct flw_pytorch_model *model,
                         const struct flw_segheap_block *block, uint64_t rounded_bytes)
{
    uint64_t remaining_bytes = block->size_bytes - rounded_bytes;
    if (block->segment->granule_bytes != 0) {
        return remaining_bytes >= ROUND_BYTES;
    }
    bool may_split =
        block->segment->pool == SMALL || rounded_bytes < model->settings.max_split_bytes;
    return may_split && is_worth_a_split(block->segment->pool, remaining_bytes);
}

/* ---- taking ---- */

/* How far a block of an expandable segment could grow in place. */
static uint64_t expandable_bytes(const struct flw_segheap_block *block)
{
    bool can_grow = block->next != NULL && block->next->is_unmapped;
    return block->size_bytes + (can_grow ? block->next->size_bytes : 0);
}

/* At the end of an expandable segment "best" counts the addresses behind the block as its own, so
 * that the end is kept for what fits nowhere else. */
static struct flw_segheap_block *prefer_less_room(struct flw_segheap_block *block)
{
    while (block != NULL && block->segment->granule_bytes != 0) {
        struct flw_segheap_block *next = flw_segheap_after(block);
        if (next == NULL || next->segment->stream != block->segment->stream ||
            expandable_bytes(next) >= expandable_bytes(block)) {
            break;
        }
        block = next;
    }
    return block;
}

/* What is never split serves no small request, and no large one that would leave much of it. */
static bool is_fitting_size(const struct flw_pytorch_model *model, uint64_t block_bytes,
                            uint64_t rounded_bytes)
{
    uint64_t max_split_bytes = model->settings.max_split_bytes;
    return rounded_bytes < max_split_bytes ? block_bytes < max_split_bytes
                                           : block_bytes < rounded_bytes + SPARE_LIMIT_BYTES;
}

static struct flw_segheap_block *take_best_fit(struct flw_pytorch_model *model, uint8_t pool,
                                               uint64_t rounded_bytes, uint16_t stream)
{
    struct flw_segheap_block *block =
        prefer_less_room(flw_segheap_find(&model->heap.mapped[pool], stream, rounded_bytes));
    if (block == NULL || !is_fitting_size(model, block->size_bytes, rounded_bytes)) {
        return NULL;
    }
    flw_segheap_take(&model->heap, block);
    return block;
}

/* ---- plain segments ---- */

static struct flw_segheap_segment *add_segment(struct flw_pytorch_model *model,
                                               struct flw_segheap_shape *shape)
{
    if (!model->source.alloc(model->source.context, shape->size_bytes, &shape->place)) {
        return NULL;
    }
    return flw_segheap_add(&model->heap, shape);
}

/* Its only block is in no list. */
static void drop_segment(struct flw_pytorch_model *model, struct flw_segheap_segment *segment)
{
    model->source.free(model->source.context, segment->device_address, segment->size_bytes);
    flw_segheap_drop(&model->heap, segment);
}

static struct flw_segheap_block *take_new_memory(struct flw_pytorch_model *model, uint8_t pool,
                                                 uint64_t rounded_bytes, uint16_t stream)
{
    if (model->settings.address_room_bytes != 0) {
        return flw_pytorch_expand_for(&model->expand, pool, rounded_bytes, stream);
    }
    struct flw_segheap_shape shape = {
        .size_bytes = segment_bytes_for(rounded_bytes), .stream = stream, .pool = pool};
    struct flw_segheap_segment *segment = add_segment(model, &shape);
    return segment == NULL ? NULL : segment->first;
}

/* ---- freeing ---- */

static void release_block(struct flw_pytorch_model *model, struct flw_segheap_block *block)
{
    flw_segheap_take(&model->heap, block);
    drop_segment(model, block->segment);
}

static bool is_releasable(const struct flw_pytorch_model *model,
                          const struct flw_segheap_block *block)
{
    return is_whole_segment(block) && block->segment->granule_bytes == 0 &&
           block->segment->stream < model->settings.first_private;
}

void flw_pytorch_release_cached(struct flw_pytorch_model *model)
{
    if (model->source.drain != NULL) {
        model->source.drain(model->source.context);
    }
    for (size_t pool = FLW_SEGHEAP_POOLS; pool-- > 0;) { /* the large pool first */
        struct flw_segheap_block *next;
        for (struct flw_segheap_block *block = flw_segheap_first(&model->heap.mapped[pool]);
             block != NULL; block = next) {
            next = flw_segheap_after(block);
            if (is_releasable(model, block)) {
                release_block(model, block);
            }
        }
    }
    flw_pytorch_expand_release(&model->expand);
}

/* The oldest half, about, of the free large segments, until so little is reserved again. */
static void collect_garbage(struct flw_pytorch_model *model)
{
    const struct flw_tree *list = &model->heap.mapped[LARGE];
    struct flw_segheap_block *block, *next;
    bool has_freed = true;
    while (has_freed && model->heap.reserved_bytes > model->settings.collect_bytes) {
        uint64_t age = 0;
        uint64_t count = 0;
        for (block = flw_segheap_first(list); block != NULL; block = flw_segheap_after(block)) {
            bool counts = is_releasable(model, block);
            age += counts ? model->now[LARGE] - block->since : 0;
            count += counts;
        }
        has_freed = false;
        for (block = flw_segheap_first(list); block != NULL; block = next) {
            next = flw_segheap_after(block);
            if (is_releasable(model, block) && (model->now[LARGE] - block->since) * count >= age) {
                release_block(model, block);
                has_freed = true;
            }
        }
    }
}

/* Blocks too large to be split: one that would do, or the largest until they would together. False:
 * not so much can be had. */
static bool release_oversized(struct flw_pytorch_model *model, uint64_t rounded_bytes,
                              uint16_t stream)
{
    const struct flw_tree *list = &model->heap.mapped[LARGE];
    uint64_t max_split_bytes = model->settings.max_split_bytes;
    uint64_t wanted_bytes = flw_max(rounded_bytes, max_split_bytes);
    if (max_split_bytes == UINT64_MAX || rounded_bytes <= SMALL_LIMIT_BYTES) {
        return false;
    }
    struct flw_segheap_block *block = flw_segheap_find(list, stream, wanted_bytes);
    if (block != NULL && is_releasable(model, block)) {
        release_block(model, block);
        return true;
    }
    uint64_t released_bytes = 0;
    struct flw_segheap_block *previous;
    for (block = flw_segheap_find_less(list, stream, wanted_bytes);
         block != NULL && block->segment->stream == stream &&
         block->size_bytes >= max_split_bytes && released_bytes < wanted_bytes;
         block = previous) {
        previous = flw_segheap_before(block);
        if (is_releasable(model, block)) {
            released_bytes += block->size_bytes;
            release_block(model, block);
        }
    }
    return released_bytes >= wanted_bytes;
}

/* ---- the policy ---- */

static struct flw_segheap_block *grow(struct flw_pytorch_model *model, uint8_t pool,
                                      uint64_t rounded_bytes, uint16_t stream)
{
    collect_garbage(model);
    struct flw_segheap_block *block = take_new_memory(model, pool, rounded_bytes, stream);
    if (block == NULL && release_oversized(model, rounded_bytes, stream)) {
        block = take_new_memory(model, pool, rounded_bytes, stream);
    }
    if (block == NULL) {
        flw_pytorch_release_cached(model);
        block = take_new_memory(model, pool, rounded_bytes, stream);
    }
    return block;
}

struct flw_segheap_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream)
{
    if (size_bytes > UINT64_MAX / 4) {
        return NULL;
    }
    uint64_t rounded_bytes = round_size(model, size_bytes);
    uint8_t pool = rounded_bytes > SMALL_LIMIT_BYTES ? LARGE : SMALL;
    model->now[pool]++;
    struct flw_segheap_block *block = take_best_fit(model, pool, rounded_bytes, stream);
    if (block == NULL) {
        block = grow(model, pool, rounded_bytes, stream);
    }
    if (block != NULL && should_split(model, block, rounded_bytes)) {
        flw_pytorch_free(model, flw_segheap_cut(&model->heap, block, rounded_bytes));
    }
    return block;
}

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_segheap_block *block)
{
    block->since = model->now[block->segment->pool];
    (void)flw_segheap_put(&model->heap, block);
}

/* ---- seeds ---- */

/* How many bytes the i-th live block of a seed holds: a tail that the policy would not have split
 * off belongs to it. 0: it does not fit. */
static uint64_t seed_block_bytes(const struct flw_pytorch_model *model,
                                 const struct flw_pytorch_seed *seed, size_t i)
{
    const struct flw_trace_block *block = &seed->blocks[i];
    uint64_t begin = block->address;
    uint64_t end = i + 1 < seed->block_count ? block[1].address : seed->address + seed->size_bytes;
    if (begin < seed->address || end < begin || block->size_bytes > seed->size_bytes) {
        return 0;
    }
    uint64_t rounded_bytes = round_size(model, block->size_bytes);
    uint64_t room_bytes = end - begin;
    if (rounded_bytes > room_bytes) {
        return 0;
    }
    return is_worth_a_split(seed->is_large, room_bytes - rounded_bytes) ? rounded_bytes
                                                                        : room_bytes;
}

bool flw_pytorch_seed_fits(const struct flw_pytorch_model *model,
                           const struct flw_pytorch_seed *seed)
{
    for (size_t i = 0; i < seed->block_count; i++) {
        if (seed_block_bytes(model, seed, i) == 0) {
            return false;
        }
    }
    return seed->size_bytes != 0;
}

bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_segheap_block **out_blocks)
{
    struct flw_segheap *heap = &model->heap;
    struct flw_segheap_shape shape = {.size_bytes = seed->size_bytes,
                                      .stream = seed->stream,
                                      .pool = seed->is_large ? LARGE : SMALL};
    struct flw_segheap_segment *segment =
        flw_pytorch_seed_fits(model, seed) ? add_segment(model, &shape) : NULL;
    if (segment == NULL) {
        return false;
    }
    segment->address = seed->address;
    segment->first->address = seed->address;
    struct flw_segheap_block *rest = segment->first; /* behind the last block; NULL: nothing is */
    for (size_t i = 0; i < seed->block_count; i++) {
        struct flw_segheap_block *block = rest;
        if (block != NULL && block->address < seed->blocks[i].address) {
            block = flw_segheap_cut(heap, rest, seed->blocks[i].address - rest->address);
            (void)flw_segheap_put(heap, rest);
        }
        if (block == NULL) {
            return false;
        }
        uint64_t bytes = seed_block_bytes(model, seed, i);
        bool is_exact = block->size_bytes <= bytes;
        out_blocks[i] = block;
        rest = is_exact ? NULL : flw_segheap_cut(heap, block, bytes);
    }
    if (rest != NULL) {
        (void)flw_segheap_put(heap, rest);
    }
    heap->cut_count = heap->join_count = 0;
    return true;
}

/* ---- life ---- */

struct flw_pytorch_model *flw_pytorch_create(const struct flw_pytorch_source *source,
                                             const struct flw_pytorch_settings *settings)
{
    struct flw_pytorch_model *model = flw_host_alloc(1, sizeof *model);
    model->source = *source;
    model->settings = *settings;
    model->expand = (struct flw_pytorch_expand){.heap = &model->heap,
                                                .source = &model->source,
                                                .address_room_bytes = settings->address_room_bytes,
                                                .first_private = settings->first_private};
    return model;
}

void flw_pytorch_destroy(struct flw_pytorch_model *model)
{
    if (model == NULL) {
        return;
    }
    for (const struct flw_segheap_segment *segment = model->heap.segments; segment != NULL;
         segment = segment->next) {
        if (segment->granule_bytes == 0) {
            model->source.free(model->source.context, segment->device_address, segment->size_bytes);
        }
    }
    flw_pytorch_expand_finish(&model->expand);
    flw_segheap_finish(&model->heap);
    flw_host_free(model);
}

uint64_t flw_pytorch_reserved_bytes(const struct flw_pytorch_model *model)
{
    return model->heap.reserved_bytes;
}

void flw_pytorch_count(const struct flw_pytorch_model *model, uint64_t *out_split_count,
                       uint64_t *out_merge_count)
{
    *out_split_count = model->heap.cut_count;
    *out_merge_count = model->heap.join_count;
}

bool flw_pytorch_is_valid(const struct flw_pytorch_model *model)
{
    return flw_segheap_is_valid(&model->heap);
}
