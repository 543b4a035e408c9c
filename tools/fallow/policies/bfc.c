/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `bfc`: a model of TensorFlow's best-fit allocator with coalescing, from its
 * documentation, as it runs with allow_growth.
 *   - sizes in multiples of 256 B; the smallest free chunk that fits, the lowest of equals. Its 21
 *     bins, powers of two from 256 B on, only speed that search up: here one sorted list does it
 *   - a chunk is split when it is twice the request or leaves 128 MiB; free neighbours of one region
 *     are joined at once
 *   - memory is taken in regions: the first 2 MiB, each one twice the last, or doubled until the
 *     request fits; where the device refuses, nine tenths as much until it does or the request no
 *     longer fits
 *   - when no region can be had, regions without a live chunk go back, if that can help, and it
 *     waits for frees that are pending
 *   - it knows no streams: it is made for one. In a program with several, a chunk comes back when
 *     all that its freeing stream and its users had been given is done, by events
 * Does not model: the default without allow_growth, which takes the whole device first; the wait of
 * up to ten seconds for other threads; chunks with a time of their own.
 */
#include "policies/policy.h"

#include "base/bits.h"

#include "common/replay_device.h"
#include "common/tool_host.h"
#include "policies/deferrals.h"
#include "policies/segheap.h"
#include "policies/uses.h"

#define ROUND_BYTES        256ull
#define FIRST_REGION_BYTES (2 * FLW_MIB)
#define MAX_WASTE_BYTES    (128 * FLW_MIB)

struct bfc {
    struct flw_uses uses; /* first, for flw_uses_announce */
    const struct flw_device *device;
    struct flw_segheap heap;           /* one stream, one pool */
    struct flw_segheap_block **blocks; /* by number */
    bool has_streams;                  /* more than one */
    struct flw_deferrals deferrals;
    uint64_t region_bytes; /* of the next region */
    uint64_t peak_reserved_bytes;
    uint64_t grow_count, call_count;
};

/* ---- regions ---- */

static uint64_t round_size(uint64_t bytes)
{
    return flw_align_up(flw_max(bytes, ROUND_BYTES), ROUND_BYTES);
}

/* What the device may still give. */
static uint64_t available_bytes(const struct bfc *bfc)
{
    uint64_t limit_bytes = bfc->device->device_bytes;
    return limit_bytes <= bfc->heap.reserved_bytes ? 0 : limit_bytes - bfc->heap.reserved_bytes;
}

static bool take_region(struct bfc *bfc, uint64_t size_bytes)
{
    CUdeviceptr pointer = 0;
    bfc->call_count++;
    if (bfc->device->driver.cuMemAlloc_v2(&pointer, size_bytes) != CUDA_SUCCESS) {
        return false;
    }
    struct flw_segheap_shape shape = {.place = {.address = pointer, .device_address = pointer},
                                      .size_bytes = size_bytes};
    struct flw_segheap_segment *region = flw_segheap_add(&bfc->heap, &shape);
    bfc->grow_count++;
    bfc->peak_reserved_bytes = flw_max(bfc->peak_reserved_bytes, bfc->heap.reserved_bytes);
    (void)flw_segheap_put(&bfc->heap, region->first);
    return true;
}

static bool extend(struct bfc *bfc, uint64_t rounded_bytes)
{
    uint64_t room_bytes = flw_align_down(available_bytes(bfc), ROUND_BYTES);
    bool has_doubled = false;
    if (rounded_bytes > room_bytes) {
        return false;
    }
    while (bfc->region_bytes < rounded_bytes) {
        bfc->region_bytes *= 2;
        has_doubled = true;
    }
    uint64_t bytes = flw_min(bfc->region_bytes, room_bytes);
    while (!take_region(bfc, bytes)) {
        bytes = round_size(bytes / 10 * 9);
        if (bytes < rounded_bytes || bytes == ROUND_BYTES) {
            return false;
        }
    }
    if (!has_doubled) {
        bfc->region_bytes *= 2;
    }
    return true;
}

static void drop_region(struct bfc *bfc, struct flw_segheap_segment *region)
{
    bfc->call_count++;
    bfc->device->driver.cuMemFree_v2((CUdeviceptr)region->device_address);
    flw_segheap_drop(&bfc->heap, region);
}

static bool is_free_region(const struct flw_segheap_segment *region)
{
    return region->first->is_free && region->first->next == NULL;
}

/* False: that would not be enough, and nothing is released. */
static bool give_free_regions_back(struct bfc *bfc, uint64_t rounded_bytes)
{
    uint64_t free_bytes = 0;
    for (const struct flw_segheap_segment *region = bfc->heap.segments; region != NULL;
         region = region->next) {
        free_bytes += is_free_region(region) ? region->size_bytes : 0;
    }
    if (free_bytes == 0 || rounded_bytes > available_bytes(bfc) + free_bytes) {
        return false;
    }
    struct flw_segheap_segment *next = NULL;
    for (struct flw_segheap_segment *region = bfc->heap.segments; region != NULL; region = next) {
        next = region->next;
        if (is_free_region(region)) {
            flw_segheap_take(&bfc->heap, region->first);
            drop_region(bfc, region);
        }
    }
    return true;
}

/* ---- chunks ---- */

static struct flw_segheap_block *take_chunk(struct bfc *bfc, uint64_t rounded_bytes)
{
    struct flw_segheap_block *chunk = flw_segheap_find(&bfc->heap.mapped[0], 0, rounded_bytes);
    if (chunk == NULL) {
        return NULL;
    }
    flw_segheap_take(&bfc->heap, chunk);
    if (chunk->size_bytes / 2 >= rounded_bytes ||
        chunk->size_bytes - rounded_bytes >= MAX_WASTE_BYTES) {
        (void)flw_segheap_put(&bfc->heap, flw_segheap_cut(&bfc->heap, chunk, rounded_bytes));
    }
    return chunk;
}

static struct flw_segheap_block *take_or_extend(struct bfc *bfc, uint64_t rounded_bytes)
{
    struct flw_segheap_block *chunk = take_chunk(bfc, rounded_bytes);
    if (chunk == NULL && extend(bfc, rounded_bytes)) {
        chunk = take_chunk(bfc, rounded_bytes);
    }
    if (chunk == NULL && give_free_regions_back(bfc, rounded_bytes) && extend(bfc, rounded_bytes)) {
        chunk = take_chunk(bfc, rounded_bytes);
    }
    return chunk;
}

static void take_back(void *context, void *block)
{
    struct bfc *bfc = context;
    (void)flw_segheap_put(&bfc->heap, block);
}

/* ---- the policy ---- */

static void finish(void *self)
{
    struct bfc *bfc = self;
    flw_deferrals_drain(&bfc->deferrals);
    for (const struct flw_segheap_segment *region = bfc->heap.segments; region != NULL;
         region = region->next) {
        bfc->call_count++;
        bfc->device->driver.cuMemFree_v2((CUdeviceptr)region->device_address);
    }
    flw_segheap_finish(&bfc->heap);
    flw_host_free(bfc->blocks);
    flw_uses_finish(&bfc->uses);
    flw_deferrals_finish(&bfc->deferrals);
    flw_host_free(bfc);
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct bfc *bfc = flw_host_alloc(1, sizeof *bfc);
    (void)message;
    bfc->device = setup->device;
    bfc->region_bytes = FIRST_REGION_BYTES;
    bfc->has_streams = setup->program->stream_count > 1;
    bfc->blocks = flw_host_alloc(setup->program->block_count, sizeof *bfc->blocks);
    bfc->deferrals =
        (struct flw_deferrals){.device = setup->device, .done = take_back, .context = bfc};
    flw_uses_init(&bfc->uses, setup->program);
    flw_deferrals_init(&bfc->deferrals, setup->program);
    return bfc;
}

static bool bfc_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct bfc *bfc = self;
    if (op->size_bytes > UINT64_MAX / 4) {
        return false;
    }
    uint64_t rounded_bytes = round_size(op->size_bytes);
    flw_deferrals_poll(&bfc->deferrals);
    struct flw_segheap_block *chunk = take_or_extend(bfc, rounded_bytes);
    if (chunk == NULL) {
        flw_deferrals_drain(&bfc->deferrals);
        chunk = take_or_extend(bfc, rounded_bytes);
    }
    if (chunk == NULL) {
        return false;
    }
    bfc->blocks[op->block] = chunk;
    *out_address = flw_segheap_device_address(chunk);
    return true;
}

static bool bfc_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct bfc *bfc = self;
    (void)address;
    struct flw_segheap_block *chunk = bfc->blocks[op->block];
    if (!bfc->has_streams) {
        take_back(bfc, chunk);
        return true;
    }
    uint64_t mask = flw_uses_get(&bfc->uses, op->block, op->stream) | 1ull << op->stream % 64;
    return flw_deferrals_put(&bfc->deferrals, chunk, op->size_bytes, mask);
}

static uint64_t chunk_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct bfc *bfc = self;
    (void)address;
    return bfc->blocks[op->block]->size_bytes;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct bfc *bfc = self;
    out->peak_reserved_bytes = bfc->peak_reserved_bytes;
    out->grow_count = bfc->grow_count;
    out->driver_call_count = bfc->call_count + bfc->deferrals.call_count;
    out->event_count = bfc->deferrals.event_count;
    out->steal_count = 0;
    out->wait_count = bfc->deferrals.wait_count;
    out->deferred_bytes = bfc->deferrals.deferred_bytes;
    out->split_count = bfc->heap.cut_count;
    out->merge_count = bfc->heap.join_count;
}

const struct flw_policy flw_policy_bfc = {
    .name = "bfc",
    .summary = "TensorFlow's best fit with coalescing, as a model",
    .allocates = true,
    .limits_by_device = true,
    .create = create,
    .alloc = bfc_alloc,
    .free = bfc_free,
    .use = flw_uses_announce,
    .block_bytes = chunk_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
};
