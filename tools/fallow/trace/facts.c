/* SPDX-License-Identifier: Apache-2.0 */
#include "facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "common/tool_host.h"
#include "verbs.h"

static void count_sizes(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    size_t count = trace->block_count - trace->initial_count;
    if (count == 0) {
        return;
    }
    uint64_t *sizes = flw_host_alloc(count, sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = trace->blocks[trace->initial_count + i].size_bytes;
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    facts->has_sizes = true;
    facts->distinct_sizes = 1;
    for (size_t i = 1; i < count; i++) {
        facts->distinct_sizes += sizes[i] != sizes[i - 1];
    }
    facts->smallest_bytes = sizes[0];
    facts->largest_bytes = sizes[count - 1];
    flw_host_free(sizes);
}

/* Both sums are at most the peak. */
static void count_blocks(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        facts->start_bytes += i < trace->initial_count ? block->size_bytes : 0;
        facts->end_bytes += block->freed ? 0 : block->size_bytes;
        facts->end_count += !block->freed;
    }
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* What stands for others, a DROP and a free that was put in, was no event itself. */
struct flw_trace_gap flw_trace_gap_count(const struct flw_trace *trace)
{
    struct flw_trace_gap gap = {.event_count = trace->event_count};
    for (size_t i = 0; i < trace->detail_count; i++) {
        gap.missing_count = add(gap.missing_count, trace->details[i].lost_count);
        gap.event_count -= trace->details[i].lost_count > 0;
    }
    gap.event_count -= flw_min(gap.event_count, trace->lost_free_count);
    gap.event_count = add(gap.event_count, trace->unknown_free_count);
    gap.event_count = add(gap.event_count, gap.missing_count);
    return gap;
}

static void count_events(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    for (size_t i = 0; i < trace->event_count; i++) {
        facts->ops[trace->events[i].op]++;
    }
    facts->lost_count = flw_trace_gap_count(trace).missing_count;
    facts->wait_count = facts->ops[FLW_TRACE_SYNC_DEVICE] + facts->ops[FLW_TRACE_SYNC_STREAM] +
                        facts->ops[FLW_TRACE_SYNC_EVENT] + facts->ops[FLW_TRACE_SYNC_WAIT];
    facts->duration_ns = trace->event_count > 0 ? trace->events[trace->event_count - 1].time_ns : 0;
}

/* Readers note them where there are several; anybody can write a header of the text form. */
static void find_devices(struct flw_trace_facts *facts)
{
    static const char key[] = "recorded_devices ";
    const char *line = facts->trace->notes;
    while (line != NULL && strncmp(line, key, sizeof key - 1) != 0) {
        line = strchr(line, '\n');
        line += line != NULL;
    }
    if (line != NULL) {
        const char *devices = line + sizeof key - 1;
        size_t bytes = strspn(devices, "0123456789 ");
        bytes += strncmp(devices + bytes, "...", 3) == 0 ? 3 : 0; /* more than they list */
        if (bytes > 0 && bytes <= FLW_TRACE_NAME_BYTES && devices[bytes] == '\n') {
            facts->devices = devices;
            facts->devices_bytes = (int)bytes;
        }
    }
}

static bool pass_frame(void *context, const struct flw_frame *frame)
{
    (void)context;
    (void)frame;
    return true;
}

static bool pass_stack(void *context, const uint32_t *frames, size_t count)
{
    (void)context;
    (void)frames;
    (void)count;
    return true;
}

/* As many as its file has: a reader may know some that nothing has. */
static void count_stacks(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    struct flw_stack_order order = {
        .stacks = &trace->stacks, .put_frame = pass_frame, .put_stack = pass_stack};
    uint32_t number;
    if (!flw_stack_order_begin(&order)) {
        return;
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        flw_stack_order_take(&order, trace->segments[i].stack, &number);
    }
    for (size_t i = 0; i < trace->record_stack_count; i++) {
        flw_stack_order_take(&order, trace->record_stacks[i], &number);
        facts->stacked_count += number != 0;
    }
    facts->stack_count = order.stack_count;
    facts->frame_count = order.frame_count;
    flw_stack_order_finish(&order);
}

struct flw_trace_facts flw_trace_facts_count(const char *path, const struct flw_trace *trace)
{
    struct flw_trace_facts facts = {
        .path = path, .trace = trace, .file_bytes = flw_verb_file_bytes(path)};
    find_devices(&facts);
    count_sizes(&facts);
    count_blocks(&facts);
    count_events(&facts);
    count_stacks(&facts);
    return facts;
}
