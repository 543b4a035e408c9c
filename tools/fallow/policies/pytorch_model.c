/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_model.h"

#include "base/bits.h"

#include "common/figures.h"
#include "common/tool_host.h"

#define ROUND_BYTES         512ull
#define SMALL_LIMIT_BYTES   (1 * FLW_MIB) /* requests up to here come from the small pool */
#define SMALL_SEGMENT_BYTES (2 * FLW_MIB) /* and a granule */
#define LARGE_SEGMENT_BYTES (20 * FLW_MIB)
#define LARGE_LIMIT_BYTES   (10 * FLW_MIB) /* requests from here on get a segment of their own size */
#define LARGE_ROUND_BYTES   (2 * FLW_MIB)
#define SPARE_LIMIT_BYTES   (20 * FLW_MIB) /* so much more a block that is not split may be */

enum pool {
    SMALL,
    LARGE
};

/* A freed block waits for this event of a stream. */
struct flw_pytorch_event {
    struct flw_pytorch_event *next;
    struct flw_pytorch_block *block;
    CUevent event;
};

const struct flw_pytorch_settings flw_pytorch_standard = {
    .max_split_bytes = UINT64_MAX, .roundup_divisions = 1, .collect_bytes = UINT64_MAX};

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

/* True if a tail is split off a block of a plain segment. */
static bool is_worth_a_split(uint8_t pool, uint64_t remaining_bytes)
{
    return pool == SMALL ? remaining_bytes >= ROUND_BYTES : remaining_bytes > SMALL_LIMIT_BYTES;
}

static bool should_split(const struct flw_pytorch_model *model,
                         const struct flw_pytorch_block *block, uint64_t rounded_bytes)
{
    uint64_t remaining_bytes = block->size_bytes - rounded_bytes;
    if (block->segment->granule_bytes != 0) {
        return remaining_bytes >= ROUND_BYTES;
    }
    bool may_split =
        block->segment->pool == SMALL || rounded_bytes < model->settings.max_split_bytes;
    return may_split && is_worth_a_split(block->segment->pool, remaining_bytes);
}

/* ---- free blocks ---- */

/* Return how many bytes a block of an expandable segment has if it grows in place. */
static uint64_t expandable_bytes(const struct flw_pytorch_block *block)
{
    bool can_grow = block->next != NULL && block->next->is_unmapped;
    return block->size_bytes + (can_grow ? block->next->size_bytes : 0);
}

/* At the end of an expandable segment the addresses behind a block count as its own, so that the end is kept for
 * requests that fit nowhere else. */
static struct flw_pytorch_block *prefer_less_room(struct flw_pytorch_block *block)
{
    while (block != NULL && block->segment->granule_bytes != 0) {
        struct flw_pytorch_block *next = flw_pytorch_heap_after(block);
        if (next == NULL || next->segment->stream != block->segment->stream ||
            expandable_bytes(next) >= expandable_bytes(block)) {
            break;
        }
        block = next;
    }
    return block;
}

/* A block that is never split serves no small request, and no large one that would leave much of it. */
static bool is_fitting_size(const struct flw_pytorch_model *model, uint64_t block_bytes,
                            uint64_t rounded_bytes)
{
    uint64_t max_split_bytes = model->settings.max_split_bytes;
    return rounded_bytes < max_split_bytes ? block_bytes < max_split_bytes
                                           : block_bytes < rounded_bytes + SPARE_LIMIT_BYTES;
}

static struct flw_pytorch_block *take_best_fit(struct flw_pytorch_model *model, uint8_t pool,
                                               uint64_t rounded_bytes, uint16_t stream)
{
    struct flw_pytorch_block *block =
        prefer_less_room(flw_pytorch_heap_find(&model->heap.lists[pool][0], stream, rounded_bytes));
    if (block == NULL || !is_fitting_size(model, block->size_bytes, rounded_bytes)) {
        return NULL;
    }
    flw_pytorch_heap_take(&model->heap, block);
    return block;
}

/* ---- growth of an expandable segment ---- */

/* True if free blocks, mapped or not, have `size_bytes` from here on. */
static bool has_room(const struct flw_pytorch_block *block, uint64_t size_bytes)
{
    uint64_t room_bytes = 0;
    for (; block != NULL && block->is_free && room_bytes < size_bytes; block = block->next) {
        room_bytes += block->size_bytes;
    }
    return room_bytes >= size_bytes;
}

/* Return an unmapped block, or a free block before one, at the stream's lowest addresses with room, or NULL. */
static struct flw_pytorch_block *find_room(const struct flw_pytorch_model *model, uint8_t pool,
                                           uint64_t size_bytes, uint16_t stream)
{
    struct flw_pytorch_block *unmapped =
        flw_pytorch_heap_find(&model->heap.lists[pool][1], stream, 0);
    for (; unmapped != NULL && unmapped->segment->stream == stream;
         unmapped = flw_pytorch_heap_after(unmapped)) {
        bool has_front = unmapped->previous != NULL && unmapped->previous->is_free;
        struct flw_pytorch_block *block = has_front ? unmapped->previous : unmapped;
        if (has_room(block, size_bytes)) {
            return block;
        }
    }
    return NULL;
}

/* Map memory to the front of an unmapped block. Returns the free block that contains it, or NULL. */
static struct flw_pytorch_block *map_front(struct flw_pytorch_model *model,
                                           struct flw_pytorch_block *block, uint64_t size_bytes)
{
    struct flw_pytorch_heap *heap = &model->heap;
    uint64_t granule_bytes = block->segment->granule_bytes;
    uint64_t mapped_bytes = flw_div_up(size_bytes, granule_bytes) * granule_bytes;
    flw_pytorch_heap_take(heap, block);
    if (block->size_bytes > mapped_bytes) {
        (void)flw_pytorch_heap_put(heap, flw_pytorch_heap_cut(heap, block, mapped_bytes));
    }
    bool is_mapped = flw_pytorch_heap_map(heap, block);
    block = flw_pytorch_heap_put(heap, block);
    return is_mapped ? block : NULL;
}

/* Return a block in no list of at least `size_bytes`, mapped as far as needed. NULL: out of memory; memory that was
 * mapped stays. */
static struct flw_pytorch_block *expand(struct flw_pytorch_model *model, uint8_t pool,
                                        uint64_t size_bytes, uint16_t stream)
{
    struct flw_pytorch_block *block = find_room(model, pool, size_bytes, stream);
    if (block == NULL) {
        uint64_t granule_bytes = pool == SMALL ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES;
        uint64_t granule_count = flw_div_up(model->settings.address_room_bytes, granule_bytes);
        block = flw_pytorch_heap_reserve(&model->heap, granule_count * granule_bytes, granule_bytes,
                                         stream, pool);
        if (block == NULL || block->size_bytes < size_bytes) {
            return NULL;
        }
    }
    if (block->is_unmapped) {
        block = map_front(model, block, size_bytes);
    }
    while (block != NULL && block->size_bytes < size_bytes) {
        block = map_front(model, block->next, size_bytes - block->size_bytes);
    }
    if (block != NULL) {
        flw_pytorch_heap_take(&model->heap, block);
    }
    return block;
}

/* ---- release ---- */

static void release_block(struct flw_pytorch_model *model, struct flw_pytorch_block *block)
{
    flw_pytorch_heap_take(&model->heap, block);
    flw_pytorch_heap_drop(&model->heap, block->segment);
}

static bool is_private(const struct flw_pytorch_model *model,
                       const struct flw_pytorch_segment *segment)
{
    return segment->stream >= model->lanes->stream_count;
}

static bool is_releasable(const struct flw_pytorch_model *model,
                          const struct flw_pytorch_block *block)
{
    return block->previous == NULL && block->next == NULL && block->segment->granule_bytes == 0 &&
           !is_private(model, block->segment);
}

/* Unmap the whole granules inside a free block. Returns the block from which the caller continues. */
static struct flw_pytorch_block *unmap_inside(struct flw_pytorch_model *model,
                                              struct flw_pytorch_block *block)
{
    struct flw_pytorch_heap *heap = &model->heap;
    const struct flw_pytorch_segment *segment = block->segment;
    uint64_t granule_bytes = segment->granule_bytes;
    uint64_t offset = block->address - segment->address;
    uint64_t begin = flw_div_up(offset, granule_bytes) * granule_bytes;
    uint64_t end = (offset + block->size_bytes) / granule_bytes * granule_bytes;
    if (begin >= end) {
        return block;
    }
    flw_pytorch_heap_take(heap, block);
    struct flw_pytorch_block *middle = block, *rest = NULL;
    if (begin > offset) {
        middle = flw_pytorch_heap_cut(heap, block, begin - offset);
        (void)flw_pytorch_heap_put(heap, block);
    }
    if (middle->size_bytes > end - begin) {
        rest = flw_pytorch_heap_cut(heap, middle, end - begin);
    }
    flw_pytorch_heap_unmap(heap, middle, flw_lanes_stream(model->lanes, segment->stream));
    middle = flw_pytorch_heap_put(heap, middle);
    if (rest != NULL) {
        (void)flw_pytorch_heap_put(heap, rest);
    }
    return middle;
}

static void unmap_segments(struct flw_pytorch_model *model)
{
    struct flw_pytorch_segment *segment, *next;
    for (segment = model->heap.segments; segment != NULL; segment = next) {
        next = segment->next;
        if (segment->granule_bytes == 0 || is_private(model, segment)) {
            continue;
        }
        bool was_mapped = false;
        for (struct flw_pytorch_block *block = segment->first; block != NULL; block = block->next) {
            if (block->is_free && !block->is_unmapped) {
                block = unmap_inside(model, block);
                was_mapped = true;
            }
        }
        if (was_mapped && segment->first->is_unmapped && segment->first->next == NULL) {
            release_block(model, segment->first);
        }
    }
}

static void free_complete(struct flw_pytorch_model *model, bool waits);

void flw_pytorch_release_cached(struct flw_pytorch_model *model)
{
    free_complete(model, true);
    for (size_t pool = FLW_PYTORCH_POOLS; pool-- > 0;) { /* the large pool first */
        struct flw_pytorch_block *block, *next;
        for (block = flw_pytorch_heap_first(&model->heap.lists[pool][0]); block != NULL;
             block = next) {
            next = flw_pytorch_heap_after(block);
            if (is_releasable(model, block)) {
                release_block(model, block);
            }
        }
    }
    unmap_segments(model);
}

/* Release about the older half of the free large segments, until no more than collect_bytes are reserved. */
static void collect_garbage(struct flw_pytorch_model *model)
{
    const struct flw_tree *list = &model->heap.lists[LARGE][0];
    struct flw_pytorch_block *block, *next;
    bool has_freed = true;
    while (has_freed && model->heap.reserved_bytes > model->settings.collect_bytes) {
        uint64_t age = 0;
        uint64_t count = 0;
        for (block = flw_pytorch_heap_first(list); block != NULL;
             block = flw_pytorch_heap_after(block)) {
            bool counts = is_releasable(model, block);
            age += counts ? model->now[LARGE] - block->since : 0;
            count += counts;
        }
        has_freed = false;
        for (block = flw_pytorch_heap_first(list); block != NULL; block = next) {
            next = flw_pytorch_heap_after(block);
            if (is_releasable(model, block) && (model->now[LARGE] - block->since) * count >= age) {
                release_block(model, block);
                has_freed = true;
            }
        }
    }
}

/* Release one block too large to be split that suffices, or the largest until they suffice together. Returns false if
 * less was released. */
static bool release_oversized(struct flw_pytorch_model *model, uint64_t rounded_bytes,
                              uint16_t stream)
{
    const struct flw_tree *list = &model->heap.lists[LARGE][0];
    uint64_t max_split_bytes = model->settings.max_split_bytes;
    uint64_t wanted_bytes = flw_max(rounded_bytes, max_split_bytes);
    if (max_split_bytes == UINT64_MAX || rounded_bytes <= SMALL_LIMIT_BYTES) {
        return false;
    }
    struct flw_pytorch_block *block = flw_pytorch_heap_find(list, stream, wanted_bytes);
    if (block != NULL && is_releasable(model, block)) {
        release_block(model, block);
        return true;
    }
    uint64_t released_bytes = 0;
    struct flw_pytorch_block *previous;
    for (block = flw_pytorch_heap_find_less(list, stream, wanted_bytes);
         block != NULL && block->segment->stream == stream &&
         block->size_bytes >= max_split_bytes && released_bytes < wanted_bytes;
         block = previous) {
        previous = flw_pytorch_heap_before(block);
        if (is_releasable(model, block)) {
            released_bytes += block->size_bytes;
            release_block(model, block);
        }
    }
    return released_bytes >= wanted_bytes;
}

/* ---- the policy ---- */

static struct flw_pytorch_block *take_new_memory(struct flw_pytorch_model *model, uint8_t pool,
                                                 uint64_t rounded_bytes, uint16_t stream)
{
    if (model->settings.address_room_bytes != 0) {
        return expand(model, pool, rounded_bytes, stream);
    }
    uint64_t size_bytes = segment_bytes_for(rounded_bytes);
    uint64_t address = model->next_bytes == size_bytes ? model->next_address : 0;
    return flw_pytorch_heap_add(&model->heap, size_bytes, stream, pool, address);
}

static struct flw_pytorch_block *grow(struct flw_pytorch_model *model, uint8_t pool,
                                      uint64_t rounded_bytes, uint16_t stream)
{
    collect_garbage(model);
    struct flw_pytorch_block *block = take_new_memory(model, pool, rounded_bytes, stream);
    if (block == NULL && release_oversized(model, rounded_bytes, stream)) {
        block = take_new_memory(model, pool, rounded_bytes, stream);
    }
    if (block == NULL) {
        flw_pytorch_release_cached(model);
        block = take_new_memory(model, pool, rounded_bytes, stream);
    }
    return block;
}

struct flw_pytorch_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream)
{
    free_complete(model, false);
    if (size_bytes > UINT64_MAX / 4) {
        return NULL;
    }
    uint64_t rounded_bytes = round_size(model, size_bytes);
    uint8_t pool = rounded_bytes > SMALL_LIMIT_BYTES ? LARGE : SMALL;
    model->now[pool]++;
    struct flw_pytorch_block *block = take_best_fit(model, pool, rounded_bytes, stream);
    if (block == NULL) {
        block = grow(model, pool, rounded_bytes, stream);
    }
    if (block != NULL && should_split(model, block, rounded_bytes)) {
        flw_pytorch_free(model, flw_pytorch_heap_cut(&model->heap, block, rounded_bytes));
    }
    return block;
}

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_pytorch_block *block)
{
    block->since = model->now[block->segment->pool];
    (void)flw_pytorch_heap_put(&model->heap, block);
}

/* ---- frees that wait for other streams ---- */

/* Return an event that is not in use, or a new one; NULL if the driver refuses it. */
static struct flw_pytorch_event *take_event(struct flw_pytorch_model *model)
{
    struct flw_pytorch_event *event = model->spare_events;
    if (event != NULL) {
        model->spare_events = event->next;
        return event;
    }
    event = flw_host_alloc(1, sizeof *event);
    model->heap.call_count++;
    if (model->heap.device->driver.cuEventCreate(&event->event, CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
        flw_host_free(event);
        return NULL;
    }
    return event;
}

static void keep_event(struct flw_pytorch_model *model, struct flw_pytorch_event *event)
{
    event->next = model->spare_events;
    model->spare_events = event;
}

static bool record(struct flw_pytorch_model *model, struct flw_pytorch_block *block, size_t stream)
{
    const struct flw_device *device = model->heap.device;
    struct flw_pytorch_event *last = take_event(model);
    if (last == NULL) {
        return false;
    }
    model->heap.call_count++;
    if (device->driver.cuEventRecord(last->event, device->streams[stream]) != CUDA_SUCCESS) {
        keep_event(model, last);
        return false;
    }
    struct flw_pytorch_queue *queue = &model->queues[stream];
    last->block = block;
    last->next = NULL;
    *(queue->first == NULL ? &queue->first : &queue->last->next) = last;
    queue->last = last;
    model->event_count++;
    return true;
}

bool flw_pytorch_free_after(struct flw_pytorch_model *model, struct flw_pytorch_block *block,
                            uint64_t stream_mask)
{
    bool is_recorded = true;
    for (size_t i = 0; is_recorded && i < model->lanes->stream_count; i++) {
        if ((stream_mask >> (i % 64) & 1) != 0) {
            block->wait_count++;
            is_recorded = record(model, block, i);
        }
    }
    return is_recorded;
}

/* Free the blocks whose events are complete; each queue ends at its first pending event, unless the host waits. */
static void free_complete(struct flw_pytorch_model *model, bool waits)
{
    const struct flw_driver *driver = &model->heap.device->driver;
    for (size_t i = 0; model->event_count != 0 && i < model->lanes->stream_count; i++) {
        struct flw_pytorch_queue *queue = &model->queues[i];
        struct flw_pytorch_event *first;
        while ((first = queue->first) != NULL &&
               (waits || driver->cuEventQuery(first->event) == CUDA_SUCCESS)) {
            if (waits) {
                model->wait_count++;
                model->heap.call_count++;
                driver->cuEventSynchronize(first->event);
            }
            if (--first->block->wait_count == 0) {
                flw_pytorch_free(model, first->block);
            }
            queue->first = first->next;
            keep_event(model, first);
        }
    }
}

/* ---- seeds ---- */

/* Return how many bytes the i-th live block of a seed takes: a tail that the policy would not have split off is part of
 * it. 0: it does not fit. */
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
    bool fits = seed->size_bytes != 0;
    for (size_t i = 0; fits && i < seed->block_count; i++) {
        fits = seed_block_bytes(model, seed, i) != 0;
    }
    return fits;
}

bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_pytorch_block **out_blocks)
{
    struct flw_pytorch_heap *heap = &model->heap;
    struct flw_pytorch_block *rest = flw_pytorch_heap_add(heap, seed->size_bytes, seed->stream,
                                                          seed->is_large ? LARGE : SMALL, 0);
    if (rest == NULL) {
        return false;
    }
    rest->address = rest->segment->address = seed->address;
    for (size_t i = 0; i < seed->block_count; i++) { /* there is a rest: the next block fits */
        struct flw_pytorch_block *block = rest;
        if (block->address < seed->blocks[i].address) {
            block = flw_pytorch_heap_cut(heap, rest, seed->blocks[i].address - rest->address);
            (void)flw_pytorch_heap_put(heap, rest);
        }
        uint64_t bytes = seed_block_bytes(model, seed, i);
        out_blocks[i] = block;
        rest = block->size_bytes <= bytes ? NULL : flw_pytorch_heap_cut(heap, block, bytes);
    }
    if (rest != NULL) {
        (void)flw_pytorch_heap_put(heap, rest);
    }
    heap->cut_count = heap->join_count = heap->grow_count = 0;
    return true;
}

/* ---- life ---- */

void flw_pytorch_init(struct flw_pytorch_model *model, const struct flw_device *device,
                      const struct flw_lanes *lanes, const struct flw_pytorch_settings *settings)
{
    *model =
        (struct flw_pytorch_model){.heap.device = device, .settings = *settings, .lanes = lanes};
    model->queues = flw_host_alloc(lanes->stream_count, sizeof *model->queues);
}

void flw_pytorch_finish(struct flw_pytorch_model *model)
{
    free_complete(model, true);
    while (model->spare_events != NULL) {
        struct flw_pytorch_event *event = model->spare_events;
        model->spare_events = event->next;
        model->heap.device->driver.cuEventDestroy_v2(event->event);
        flw_host_free(event);
    }
    flw_pytorch_heap_finish(&model->heap);
    flw_host_free(model->queues);
}
