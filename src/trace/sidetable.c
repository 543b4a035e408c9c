/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recomputing which details and contexts a trace must and may have.
 */
#include "trace/sidetable.h"

#include <string.h>

bool flw_sidetable_needs_name(uint8_t op)
{
    return op == FLW_TRACE_PHASE_BEGIN || op == FLW_TRACE_PHASE_END || op == FLW_TRACE_CONFIG;
}

static bool takes_name(uint8_t op)
{
    return op == FLW_TRACE_MARK || flw_sidetable_needs_name(op);
}

static bool needs_detail(uint8_t op)
{
    return flw_sidetable_needs_name(op) || op == FLW_TRACE_SYNC_WAIT || op == FLW_TRACE_DROP;
}

static const char *check_detail(const struct flw_trace *trace,
                                const struct flw_trace_detail *detail)
{
    uint8_t op = trace->events[detail->event].op;
    bool has_name = detail->name != FLW_TRACE_NO_NAME;
    bool has_bytes =
        detail->free_bytes != FLW_TRACE_UNKNOWN || detail->largest_bytes != FLW_TRACE_UNKNOWN;
    if (has_name && (detail->name >= trace->name_count || !takes_name(op))) {
        return "an event has a name that is not in the list, or that it cannot have";
    }
    if (!has_name && flw_sidetable_needs_name(op)) {
        return "a phase or a setting has no name";
    }
    if (has_bytes && op != FLW_TRACE_OOM) {
        return "an event has free bytes that is no out-of-memory";
    }
    if ((detail->lost_count > 0) != (op == FLW_TRACE_DROP)) {
        return "an event counts missing ones that should not, or does not that should";
    }
    if (op == FLW_TRACE_SYNC_WAIT ? detail->other_stream >= trace->stream_count
                                  : detail->other_stream != 0) {
        return "an event names another stream that is not in the list, or that it cannot have";
    }
    return has_name || has_bytes || needs_detail(op) ? NULL : "a detail says nothing";
}

static const char *check_details(const struct flw_trace *trace)
{
    size_t next = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (next < trace->detail_count && trace->details[next].event == i) {
            const char *wrong = check_detail(trace, &trace->details[next++]);
            if (wrong != NULL) {
                return wrong;
            }
        } else if (needs_detail(trace->events[i].op)) {
            return "an event lacks its detail";
        }
    }
    return next == trace->detail_count ? NULL : "the details are not in the order of events";
}

static const char *check_contexts(const struct flw_trace *trace)
{
    struct flw_trace_context last = {0};
    for (size_t i = 0; i < trace->context_count; i++) {
        const struct flw_trace_context *context = &trace->contexts[i];
        if ((i > 0 && context->record <= last.record) ||
            context->record >= trace->initial_count + trace->event_count) {
            return "the contexts are not in the order of records";
        }
        if (context->thread == last.thread && context->tag == last.tag &&
            context->pool == last.pool) {
            return "a context is the one before it";
        }
        last = *context;
    }
    return NULL;
}

const char *flw_sidetable_check(const struct flw_trace *trace)
{
    for (size_t i = 0; i < trace->name_count; i++) {
        if (!flw_trace_is_name(trace->names[i], strlen(trace->names[i]))) {
            return "a name is empty, too long or not printable";
        }
    }
    const char *wrong = check_details(trace);
    return wrong != NULL ? wrong : check_contexts(trace);
}
