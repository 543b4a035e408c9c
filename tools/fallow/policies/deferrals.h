/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: freed blocks that may not be allocated again before events are done: one event for each
 * stream that still uses a block, recorded at its free, in one queue a stream. Does not: decide
 * which streams those are, or take the block back (`done` does).
 */
#ifndef FLW_TOOL_DEFERRALS_H
#define FLW_TOOL_DEFERRALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/program.h"
#include "common/replay_device.h"

struct flw_deferral_queue;
struct flw_deferred_block;

struct flw_deferrals {
    const struct flw_device *device;
    void (*done)(void *context, void *block); /* its last event is done */
    void *context;
    struct flw_deferral_queue *queues; /* a stream */
    size_t stream_count;
    struct flw_deferred_block *lost; /* blocks that a refused event keeps from coming back */
    bool has_any;                    /* ever */
    uint64_t call_count, event_count, wait_count;
    uint64_t deferred_bytes; /* of all blocks ever put */
};

/* device, done and context are set. */
void flw_deferrals_init(struct flw_deferrals *deferrals, const struct flw_program *program);

/* The block, of `bytes`, waits for all that the streams of the mask have been given; stream i is bit i % 64, and
 * there is at least one. False: the device refused; the block never comes back. */
bool flw_deferrals_put(struct flw_deferrals *deferrals, void *block, uint64_t bytes,
                       uint64_t stream_mask);

/* Blocks whose events are done come back; each queue ends at its first pending event. */
void flw_deferrals_poll(struct flw_deferrals *deferrals);

/* Wait for all of them. */
void flw_deferrals_drain(struct flw_deferrals *deferrals);

/* Nothing waits any more. */
void flw_deferrals_finish(struct flw_deferrals *deferrals);

#endif
