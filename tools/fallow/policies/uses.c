/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/uses.h"

#include "common/replay_device.h"

static bool wait_for(const struct flw_device *device, CUevent event, uint16_t before,
                     uint16_t after)
{
    return device->driver.cuEventRecord(event, device->streams[before]) == CUDA_SUCCESS &&
           device->driver.cuStreamWaitEvent(device->streams[after], event, 0) == CUDA_SUCCESS;
}

bool flw_uses_wait(const struct flw_uses *uses, const struct flw_device *device, CUevent event,
                   const struct flw_op *op, uint16_t waiter, uint64_t *event_count)
{
    uint64_t mask = flw_uses_get(uses, op->block, waiter);
    for (uint16_t i = 0; i < device->stream_count && (mask != 0 || op->stream != waiter); i++) {
        bool is_user = (mask >> (i % 64) & 1) != 0 || i == op->stream;
        if (!is_user || i == waiter) {
            continue;
        }
        ++*event_count;
        if (!wait_for(device, event, i, waiter)) {
            return false;
        }
    }
    return true;
}
