/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a recording says of a block that a replay's requests do not: which private pool it came
 * from, and that its free took until later to be complete. Does not: replay anything.
 *
 * A *lane* is what memory of the model never crosses: a stream in the common pool, or a stream in a
 * private one. The first lanes are the streams.
 */
#ifndef FLW_TOOL_PYTORCH_RECORD_H
#define FLW_TOOL_PYTORCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_trace;

struct flw_pytorch_lane {
    uint32_t pool;
    uint16_t stream;
};

struct flw_pytorch_record {
    const struct flw_trace *trace;
    size_t stream_count;
    struct flw_pytorch_lane *lanes; /* the private ones */
    size_t lane_count, lane_capacity;
    uint16_t *block_lanes; /* by block; NULL: no private pools */
    bool *are_late;        /* by block; NULL: every free is complete at once */
};

/* False: no host memory, or more lanes than can be told apart; finish is allowed. */
bool flw_pytorch_record_init(struct flw_pytorch_record *record, const struct flw_trace *trace,
                             size_t stream_count);

void flw_pytorch_record_finish(struct flw_pytorch_record *record);

/* Of a block, as it was lent. */
uint16_t flw_pytorch_record_lane(const struct flw_pytorch_record *record, uint32_t block);

/* Of an initial segment. UINT16_MAX: no host memory. */
uint16_t flw_pytorch_record_find_lane(struct flw_pytorch_record *record, uint32_t pool,
                                      uint16_t stream);

uint16_t flw_pytorch_record_stream(const struct flw_pytorch_record *record, uint16_t lane);

/* Did allocations pass between the block's free and the end of that free? */
bool flw_pytorch_record_is_late(const struct flw_pytorch_record *record, uint32_t block);

#endif
