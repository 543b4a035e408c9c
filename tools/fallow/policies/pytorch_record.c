/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_record.h"

#include "trace/trace.h"

#include "common/tool_host.h"

void flw_pytorch_record_init(struct flw_pytorch_record *record, const struct flw_trace *trace)
{
    uint64_t *alloc_counts = flw_host_alloc(trace->block_count, sizeof *alloc_counts);
    record->are_late = flw_host_alloc(trace->block_count, sizeof *record->are_late);
    bool is_any_late = false;
    uint64_t alloc_count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            alloc_count++;
        } else if (event->op == FLW_TRACE_FREE) {
            alloc_counts[event->block] = alloc_count;
        } else if (event->op == FLW_TRACE_FREE_DONE && alloc_counts[event->block] != alloc_count) {
            record->are_late[event->block] = true;
            is_any_late = true;
        }
    }
    flw_host_free(alloc_counts);
    if (!is_any_late) {
        flw_host_free(record->are_late);
        record->are_late = NULL;
    }
}

void flw_pytorch_record_finish(struct flw_pytorch_record *record)
{
    flw_host_free(record->are_late);
}

bool flw_pytorch_record_is_late(const struct flw_pytorch_record *record, uint32_t block)
{
    return record->are_late != NULL && record->are_late[block];
}
