/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `cub`: a model of CUB's CachingDeviceAllocator, from its documentation.
 *   - a request is rounded up to a power of bin_growth, at least bin_growth^min_bin; above
 *     bin_growth^max_bin it is neither rounded nor ever cached
 *   - a block serves requests of its own bin only, and is never split or joined
 *   - it belongs to the stream that it was allocated on: there it is reused at once, on other
 *     streams when the event that was recorded at its free is done; of several the longest cached
 *     is taken
 *   - it is cached while the cache then holds at most max_cached_bytes, else released
 *   - when the device is full, everything cached goes back, then once more
 * The free knows one stream, so the program makes that stream wait for the others that used the
 * block first. Does not model: several devices, its lock, or its debug output.
 */
#include "policies/policy.h"

#include <stdio.h>

#include "base/bits.h"

#include "common/replay_device.h"
#include "common/tool_host.h"
#include "policies/uses.h"

#define NO_BIN UINT32_MAX

enum {
    BIN_GROWTH,
    MIN_BIN,
    MAX_BIN,
    MAX_CACHED_BYTES,
    SETTING_COUNT
};

static const struct flw_policy_setting settings[SETTING_COUNT] = {
    [BIN_GROWTH] =
        {.name = "bin_growth", .kind = FLW_SETTING_COUNT, .least = 2, .most = 1024, .standard = 8},
    [MIN_BIN] = {.name = "min_bin", .kind = FLW_SETTING_COUNT, .most = 63, .standard = 3},
    [MAX_BIN] = {.name = "max_bin", .kind = FLW_SETTING_COUNT, .most = 63, .standard = 7},
    /* three of the largest bin, less a byte */
    [MAX_CACHED_BYTES] = {.name = "max_cached_bytes",
                          .kind = FLW_SETTING_BYTES,
                          .standard = 6 * FLW_MIB - 1},
};

struct cached {
    struct cached *next;
    CUdeviceptr pointer;
    CUevent event;
    uint64_t size_bytes;
    uint32_t bin;
    uint16_t stream; /* allocated on last */
};

/* Cached blocks of one size, the longest cached first. */
struct bin {
    struct cached *first, **end;
};

struct cub {
    struct flw_uses uses; /* first, for flw_uses_announce */
    const struct flw_device *device;
    uint64_t bin_growth, min_bin, max_bin, max_cached_bytes;
    struct bin bins[64];
    struct cached **live; /* by block number */
    CUevent order_event;
    uint64_t cached_bytes, reserved_bytes, peak_reserved_bytes;
    uint64_t grow_count, call_count, event_count, hit_count, steal_count;
};

/* ---- blocks ---- */

/* The smallest power of the growth that holds `size_bytes`. */
static uint32_t bin_for(const struct cub *cub, uint64_t *size_bytes)
{
    uint64_t bytes = 1;
    uint32_t bin = 0;
    while (bin < cub->min_bin || bytes < *size_bytes) {
        if (bin >= cub->max_bin || bytes > UINT64_MAX / 2 / cub->bin_growth) {
            return NO_BIN;
        }
        bytes *= cub->bin_growth;
        bin++;
    }
    *size_bytes = bytes;
    return bin;
}

static void release_block(struct cub *cub, struct cached *block)
{
    cub->call_count += 2;
    cub->device->driver.cuMemFree_v2(block->pointer);
    cub->device->driver.cuEventDestroy_v2(block->event);
    cub->reserved_bytes -= block->size_bytes;
    flw_host_free(block);
}

static void release_cache(struct cub *cub)
{
    for (size_t i = 0; i < sizeof cub->bins / sizeof *cub->bins; i++) {
        while (cub->bins[i].first != NULL) {
            struct cached *block = cub->bins[i].first;
            cub->bins[i].first = block->next;
            release_block(cub, block);
        }
        cub->bins[i].end = &cub->bins[i].first;
    }
    cub->cached_bytes = 0;
}

static bool may_serve(struct cub *cub, const struct cached *block, uint16_t stream)
{
    if (block->stream == stream) {
        return true;
    }
    cub->call_count++;
    return cub->device->driver.cuEventQuery(block->event) == CUDA_SUCCESS;
}

static struct cached *take_cached(struct cub *cub, uint32_t index, uint16_t stream)
{
    struct bin *bin = &cub->bins[index];
    for (struct cached **link = &bin->first; *link != NULL; link = &(*link)->next) {
        struct cached *block = *link;
        if (!may_serve(cub, block, stream)) {
            continue;
        }
        *link = block->next;
        if (bin->end == &block->next) {
            bin->end = link;
        }
        cub->cached_bytes -= block->size_bytes;
        cub->hit_count++;
        cub->steal_count += block->stream != stream;
        block->stream = stream;
        return block;
    }
    return NULL;
}

static bool take_from_device(struct cub *cub, struct cached *block)
{
    const struct flw_driver *driver = &cub->device->driver;
    cub->call_count++;
    if (driver->cuMemAlloc_v2(&block->pointer, block->size_bytes) != CUDA_SUCCESS) {
        release_cache(cub);
        cub->call_count++;
        if (driver->cuMemAlloc_v2(&block->pointer, block->size_bytes) != CUDA_SUCCESS) {
            return false;
        }
    }
    cub->call_count++;
    if (driver->cuEventCreate(&block->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        driver->cuMemFree_v2(block->pointer);
        return false;
    }
    cub->grow_count++;
    cub->reserved_bytes += block->size_bytes;
    cub->peak_reserved_bytes = flw_max(cub->peak_reserved_bytes, cub->reserved_bytes);
    return true;
}

static struct cached *take_new(struct cub *cub, uint32_t bin, uint64_t size_bytes, uint16_t stream)
{
    struct cached *block = flw_host_alloc(1, sizeof *block);
    *block = (struct cached){.size_bytes = size_bytes, .bin = bin, .stream = stream};
    if (!take_from_device(cub, block)) {
        flw_host_free(block);
        return NULL;
    }
    return block;
}

/* ---- the policy ---- */

static void finish(void *self)
{
    struct cub *cub = self;
    release_cache(cub);
    if (cub->order_event != NULL) {
        cub->device->driver.cuEventDestroy_v2(cub->order_event);
    }
    flw_uses_finish(&cub->uses);
    flw_host_free(cub->live);
    flw_host_free(cub);
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct cub *cub = flw_host_alloc(1, sizeof *cub);
    cub->device = setup->device;
    cub->bin_growth = flw_policy_value(setup->policy, BIN_GROWTH);
    cub->min_bin = flw_policy_value(setup->policy, MIN_BIN);
    cub->max_bin = flw_policy_value(setup->policy, MAX_BIN);
    cub->max_cached_bytes = flw_policy_value(setup->policy, MAX_CACHED_BYTES);
    release_cache(cub); /* none yet: the lists get their ends */
    cub->live = flw_host_alloc(setup->program->block_count, sizeof(struct cached *));
    flw_uses_init(&cub->uses, setup->program);
    if (cub->max_bin < cub->min_bin) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: max_bin is below min_bin, which is %llu", setup->policy->name,
                 (unsigned long long)cub->min_bin);
        finish(cub);
        return NULL;
    }
    CUresult result = cub->device->driver.cuEventCreate(&cub->order_event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        flw_device_say(cub->device, "cuEventCreate", result, message);
        finish(cub);
        return NULL;
    }
    return cub;
}

static bool cub_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct cub *cub = self;
    uint64_t size_bytes = op->size_bytes;
    uint32_t bin = bin_for(cub, &size_bytes);
    struct cached *block = bin == NO_BIN ? NULL : take_cached(cub, bin, op->stream);
    if (block == NULL) {
        block = take_new(cub, bin, size_bytes, op->stream);
    }
    if (block == NULL) {
        return false;
    }
    cub->live[op->block] = block;
    *out_address = block->pointer;
    return true;
}

static bool cub_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct cub *cub = self;
    struct cached *block = cub->live[op->block];
    uint64_t wait_count = 0;
    (void)address;
    bool is_ordered =
        flw_uses_wait(&cub->uses, cub->device, cub->order_event, op, block->stream, &wait_count);
    cub->event_count += wait_count;
    cub->call_count += 2 * wait_count;
    if (!is_ordered) {
        return false;
    }
    if (block->bin == NO_BIN || block->size_bytes > cub->max_cached_bytes ||
        cub->cached_bytes > cub->max_cached_bytes - block->size_bytes) {
        release_block(cub, block);
        return true;
    }
    cub->call_count++;
    cub->event_count++;
    if (cub->device->driver.cuEventRecord(block->event, cub->device->streams[block->stream]) !=
        CUDA_SUCCESS) {
        return false;
    }
    struct bin *bin = &cub->bins[block->bin];
    cub->cached_bytes += block->size_bytes;
    block->next = NULL;
    *bin->end = block;
    bin->end = &block->next;
    return true;
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct cub *cub = self;
    (void)address;
    return cub->live[op->block]->size_bytes;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct cub *cub = self;
    out->peak_reserved_bytes = cub->peak_reserved_bytes;
    out->grow_count = cub->grow_count;
    out->driver_call_count = cub->call_count;
    out->event_count = cub->event_count;
    out->steal_count = cub->steal_count;
    out->wait_count = 0;
    out->hit_count = cub->hit_count;
    out->split_count = out->merge_count = 0;
    out->deferred_bytes = 0; /* its stream waits for the others at the free */
}

const struct flw_policy flw_policy_cub = {
    .name = "cub",
    .summary = "CUB's caching allocator, as a model",
    .allocates = true,
    .limits_by_device = true,
    .create = create,
    .alloc = cub_alloc,
    .free = cub_free,
    .use = flw_uses_announce,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
    .settings = settings,
    .setting_count = SETTING_COUNT,
};
