/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `driver`: every request is a cuMemAlloc, every free a cuMemFree, which waits for
 * the device. What a program without any caching allocator pays.
 */
#include "policies/policy.h"

#include "base/bits.h"

#include "common/replay_device.h"
#include "common/tool_host.h"

struct plain {
    const struct flw_device *device;
    uint64_t requested_bytes, peak_requested_bytes;
    uint64_t alloc_count, call_count;
};

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct plain *plain = flw_host_alloc(1, sizeof *plain);
    message[0] = '\0';
    plain->device = setup->device;
    return plain;
}

static bool plain_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct plain *plain = self;
    CUdeviceptr pointer = 0;
    plain->call_count++;
    if (plain->device->driver.cuMemAlloc_v2(&pointer, op->size_bytes) != CUDA_SUCCESS) {
        return false;
    }
    plain->alloc_count++;
    plain->requested_bytes += op->size_bytes;
    plain->peak_requested_bytes = flw_max(plain->peak_requested_bytes, plain->requested_bytes);
    *out_address = pointer;
    return true;
}

static bool plain_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct plain *plain = self;
    plain->call_count++;
    plain->requested_bytes -= op->size_bytes;
    return plain->device->driver.cuMemFree_v2((CUdeviceptr)address) == CUDA_SUCCESS;
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct plain *plain = self;
    (void)address;
    return flw_device_allocation_bytes(plain->device, op->size_bytes);
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct plain *plain = self;
    out->peak_reserved_bytes = plain->peak_requested_bytes;
    out->driver_call_count = plain->call_count;
    out->grow_count = plain->alloc_count;
    out->event_count = 0;
    out->split_count = out->merge_count = 0;
    out->deferred_bytes = 0;
}

static void finish(void *self)
{
    flw_host_free(self);
}

const struct flw_policy flw_policy_driver = {
    .name = "driver",
    .summary = "a driver call for every request, no cache",
    .allocates = true,
    .limits_by_device = true,
    .create = create,
    .alloc = plain_alloc,
    .free = plain_free,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
};
