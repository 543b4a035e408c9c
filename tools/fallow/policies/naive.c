/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `naive`: the pool that a careful person writes in an afternoon, one lock and an
 * event on every free. What the library has to beat.
 */
#include "policies/policy.h"

#include <stdio.h>

#include "common/replay_device.h"
#include "common/tool_host.h"
#include "policies/naive_pool.h"

struct afternoon {
    struct flw_naive *pool;
    const struct flw_device *device;
    fallow_stream *streams; /* the device's */
};

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct afternoon *afternoon = flw_host_alloc(1, sizeof *afternoon);
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    if (afternoon != NULL) {
        afternoon->device = setup->device;
        afternoon->streams = setup->device->streams;
        status = flw_naive_create(&setup->device->driver,
                                  setup->device->is_sim ? 0 : setup->device->ordinal,
                                  setup->limit_bytes, &afternoon->pool);
    }
    if (status != FALLOW_OK) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy naive: %s", fallow_status_name(status));
        flw_host_free(afternoon, 1, sizeof *afternoon);
        return NULL;
    }
    return afternoon;
}

static bool lend(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct afternoon *afternoon = self;
    void *pointer = NULL;
    fallow_status status =
        flw_naive_alloc(afternoon->pool, op->size_bytes, afternoon->streams[op->stream], &pointer);
    *out_address = (uint64_t)(uintptr_t)pointer;
    return status == FALLOW_OK;
}

static bool take_back(void *self, const struct flw_op *op, uint64_t address)
{
    struct afternoon *afternoon = self;
    return flw_naive_free(afternoon->pool, (void *)(uintptr_t)address,
                          afternoon->streams[op->stream]) == FALLOW_OK;
}

static bool announce(void *self, const struct flw_op *op, uint64_t address)
{
    struct afternoon *afternoon = self;
    return flw_naive_record_use(afternoon->pool, (void *)(uintptr_t)address,
                                afternoon->streams[op->stream]) == FALLOW_OK;
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct afternoon *afternoon = self;
    (void)address;
    return flw_device_allocation_bytes(afternoon->device, op->size_bytes);
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct afternoon *afternoon = self;
    fallow_stats stats;
    stats.struct_size = sizeof stats;
    flw_naive_get_stats(afternoon->pool, &stats);
    flw_policy_take_stats(out, &stats);
    out->split_count = out->merge_count = 0;
    out->deferred_bytes = 0; /* whoever takes a block waits for its marks */
}

static void finish(void *self)
{
    struct afternoon *afternoon = self;
    flw_naive_destroy(afternoon->pool);
    flw_host_free(afternoon, 1, sizeof *afternoon);
}

const struct flw_policy flw_policy_naive = {
    .name = "naive",
    .summary = "one lock, and an event on every free",
    .lends = true,
    .is_thread_safe = true,
    .limits_by_device = true, /* its own count knows nothing of the driver's rounding */
    .create = create,
    .alloc = lend,
    .free = take_back,
    .use = announce,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
};
