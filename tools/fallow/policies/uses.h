/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which streams have used each block besides the one it was allocated on: a bit a stream, for
 * policies that have no such call of their own; and what a program does about them before a free. Does not:
 * know more than 64 streams; a trace with more shares bits, which only waits more.
 */
#ifndef FLW_TOOL_USES_H
#define FLW_TOOL_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver.h"

#include "common/program.h"
#include "common/replay_device.h"
#include "common/tool_host.h"

struct flw_uses {
    uint64_t *masks; /* NULL: the program uses no block on another stream */
};

static inline void flw_uses_init(struct flw_uses *uses, const struct flw_program *program)
{
    uses->masks =
        program->has_uses ? flw_host_alloc(program->block_count, sizeof *uses->masks) : NULL;
}

static inline void flw_uses_finish(struct flw_uses *uses)
{
    flw_host_free(uses->masks);
}

/* The `use` of a policy whose state begins with its uses. */
static inline bool flw_uses_announce(void *self, const struct flw_op *op, uint64_t address)
{
    struct flw_uses *uses = self;
    (void)address;
    uses->masks[op->block] |= 1ull << (op->stream % 64);
    return true;
}

/* The block's users other than `stream`, as a mask; 0 almost always. */
static inline uint64_t flw_uses_get(const struct flw_uses *uses, uint32_t block, uint16_t stream)
{
    return uses->masks == NULL ? 0 : uses->masks[block] & ~(1ull << (stream % 64));
}

static inline bool flw_uses_order(const struct flw_device *device, CUevent event, uint16_t before,
                                  uint16_t after)
{
    return device->driver.cuEventRecord(event, device->streams[before]) == CUDA_SUCCESS &&
           device->driver.cuStreamWaitEvent(device->streams[after], event, 0) == CUDA_SUCCESS;
}

/* Before a free that knows one stream only: `waiter` waits for every other stream that used the
 * block, and for the freeing one. Each takes a record and a wait, and is added to *event_count. */
static inline bool flw_uses_wait(const struct flw_uses *uses, const struct flw_device *device,
                                 CUevent event, const struct flw_op *op, uint16_t waiter,
                                 uint64_t *event_count)
{
    uint64_t mask = flw_uses_get(uses, op->block, waiter);
    for (uint16_t i = 0; i < device->stream_count && (mask != 0 || op->stream != waiter); i++) {
        bool is_user = (mask >> (i % 64) & 1) != 0 || i == op->stream;
        if (!is_user || i == waiter) {
            continue;
        }
        ++*event_count;
        if (!flw_uses_order(device, event, i, waiter)) {
            return false;
        }
    }
    return true;
}

#endif
