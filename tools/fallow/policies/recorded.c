/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: two policies that run nothing: `recorded`, what the trace says that its own allocator held,
 * and `bound`, the most bytes that were ever live, below which no policy can go.
 */
#include "policies/policy.h"

#include "trace/trace.h"

/* The setup's trace outlives the policy, so the policy is the setup itself. */
static void *create(const struct flw_policy_setup *setup, char *message)
{
    message[0] = '\0';
    return (void *)(uintptr_t)setup;
}

static void finish(void *self)
{
    (void)self;
}

static uint64_t count_ooms(const struct flw_trace *trace)
{
    uint64_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].op == FLW_TRACE_OOM;
    }
    return count;
}

static void get_recorded(void *self, struct flw_policy_statistics *out)
{
    const struct flw_policy_setup *setup = self;
    const struct flw_trace *trace = setup->trace;
    out->peak_requested_bytes = trace->peak_requested_bytes;
    out->failure_count = count_ooms(trace);
    if (trace->recorded_peak_reserved_bytes != 0) {
        out->peak_reserved_bytes = trace->recorded_peak_reserved_bytes;
    }
    if (trace->has_segments) {
        out->driver_call_count = trace->recorded_segment_calls;
    }
}

static void get_bound(void *self, struct flw_policy_statistics *out)
{
    const struct flw_policy_setup *setup = self;
    out->peak_requested_bytes = setup->program->max_live_bytes;
    out->peak_reserved_bytes = setup->program->max_live_bytes;
    out->failure_count = 0;
}

const struct flw_policy flw_policy_recorded = {
    .name = "recorded",
    .summary = "what the trace says that its own allocator held",
    .create = create,
    .get_statistics = get_recorded,
    .finish = finish,
};

const struct flw_policy flw_policy_bound = {
    .name = "bound",
    .summary = "the most bytes that were live: none can hold less",
    .create = create,
    .get_statistics = get_bound,
    .finish = finish,
};
