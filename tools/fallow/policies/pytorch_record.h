/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a recording says of frees that a replay's requests do not: that one took until later to
 * be complete. Does not: replay anything.
 */
#ifndef FLW_TOOL_PYTORCH_RECORD_H
#define FLW_TOOL_PYTORCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_trace;

struct flw_pytorch_record {
    bool *are_late; /* by block; NULL: every free is complete at once */
};

void flw_pytorch_record_init(struct flw_pytorch_record *record, const struct flw_trace *trace);

void flw_pytorch_record_finish(struct flw_pytorch_record *record);

/* Did allocations pass between the block's free and the end of that free? */
bool flw_pytorch_record_is_late(const struct flw_pytorch_record *record, uint32_t block);

#endif
