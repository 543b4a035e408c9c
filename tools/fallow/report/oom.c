/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: repeating the recording's failed request with each policy, after the same earlier ops.
 */
#include "report/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

#define MOST_BYTES      (64ull << 40) /* larger figures are errors: no device has so much */
#define MOST_SEARCH_OPS 250000

/* ---- the memory at the failed request ---- */

/* Find the bytes that the recorded allocator held, the idle part, and the limit: held plus free on the device. If the
 * segments are unknown, count the live bytes as held. */
static void find_room(struct flw_analysis *analysis)
{
    const struct flw_trace *trace = analysis->trace;
    struct flw_analysis_oom *oom = &analysis->oom;
    struct flw_analysis_holes holes;
    uint64_t reserved_bytes = flw_collect_oom_heap(analysis, &holes);
    uint64_t used_bytes = oom->live_bytes + oom->pending_bytes;
    oom->idle_bytes = FLW_UNKNOWN;
    if (trace->has_segments && reserved_bytes >= used_bytes) {
        oom->idle_bytes = reserved_bytes - used_bytes;
        if (trace->has_addresses) { /* exclude the rounding of blocks */
            oom->idle_bytes = flw_min(oom->idle_bytes, holes.total_bytes);
        }
        if (trace->has_addresses && oom->largest_hole_bytes == FLW_UNKNOWN) {
            oom->largest_hole_bytes = holes.largest_bytes;
        }
    }
    oom->limit_bytes = oom->free_bytes == FLW_UNKNOWN || oom->free_bytes > MOST_BYTES
                           ? FLW_UNKNOWN
                           : flw_max(reserved_bytes, oom->live_bytes) + oom->free_bytes;
}

/* ---- the program up to the request, and the request ---- */

/* The program up to the request, which becomes an allocation of a new block as the last event. Owns events, blocks and
 * program; the rest is borrowed from the trace. */
struct asking {
    struct flw_trace trace;
    struct flw_program *program;
};

static size_t count_blocks(const struct flw_trace *trace, size_t event_count)
{
    size_t count = trace->initial_count;
    for (size_t i = 0; i < event_count; i++) {
        count += trace->events[i].op == FLW_TRACE_ALLOC;
    }
    return count;
}

static void make_asking(const struct flw_trace *trace, size_t event, bool is_by_time,
                        struct asking *out)
{
    size_t block = count_blocks(trace, event);
    out->trace = *trace;
    out->trace.events = flw_host_alloc(event + 1, sizeof *trace->events);
    out->trace.blocks = flw_host_alloc(block + 1, sizeof *trace->blocks);
    memcpy(out->trace.events, trace->events, (event + 1) * sizeof *trace->events);
    if (block != 0) {
        memcpy(out->trace.blocks, trace->blocks, block * sizeof *trace->blocks);
    }
    struct flw_trace_event *asked = &out->trace.events[event];
    asked->op = FLW_TRACE_ALLOC;
    asked->block = (uint32_t)block;
    asked->address = 0;
    out->trace.blocks[block] =
        (struct flw_trace_block){.size_bytes = asked->size_bytes, .stream = asked->stream};
    out->trace.event_count = event + 1;
    out->trace.block_count = block + 1;
    out->program = flw_program_create(&out->trace, is_by_time);
}

static void finish_asking(struct asking *asking)
{
    flw_program_destroy(asking->program);
    flw_host_free(asking->trace.events);
    flw_host_free(asking->trace.blocks);
}

/* ---- one policy ---- */

static void note_refusal(void *context, const struct flw_run *run, size_t i)
{
    size_t *first_refused = context;
    const struct flw_op *op = &run->setup->program->ops[i];
    if (op->kind == FLW_OP_ALLOC && run->addresses[op->block] == 0 && *first_refused == SIZE_MAX) {
        *first_refused = i;
    }
}

/* Replay the program and the request once, with the limit of the setup. */
static enum flw_analysis_outcome run_once(const struct flw_run_setup *setup,
                                          const struct flw_policy *policy,
                                          struct flw_run_result *result)
{
    size_t first_refused = SIZE_MAX;
    size_t asked_op = setup->program->op_count - 2; /* the end is an op too */
    struct flw_run_observer observer = {.after_op = note_refusal, .context = &first_refused};
    struct flw_run_setup run = *setup;
    run.observer = &observer;
    if (!flw_run_policy(&run, policy, result)) {
        return FLW_ANALYSIS_NOT_ASKED;
    }
    return first_refused == SIZE_MAX   ? FLW_ANALYSIS_SERVED
           : first_refused == asked_op ? FLW_ANALYSIS_REFUSED
                                       : FLW_ANALYSIS_REFUSED_BEFORE;
}

static uint64_t find_smallest(const struct flw_run_setup *setup, const struct flw_policy *policy)
{
    struct flw_run_setup unlimited = *setup;
    struct flw_run_result result;
    unlimited.limit_bytes = 0;
    bool is_served = run_once(&unlimited, policy, &result) == FLW_ANALYSIS_SERVED;
    uint64_t bytes =
        is_served ? flw_run_find_limit(&unlimited, policy, &result) : FLW_NOT_APPLICABLE;
    return bytes == FLW_NOT_APPLICABLE ? FLW_UNKNOWN : bytes;
}

/* Replay the request with one policy. A request that is served at the limit counts as served there even if the search,
 * which is not monotone, ends above the limit. */
static void ask(const struct flw_run_setup *setup, const struct flw_policy *policy,
                struct flw_analysis_oom *oom)
{
    struct flw_analysis_answer *answer = &oom->answers[oom->answer_count++];
    struct flw_run_result result;
    snprintf(answer->name, sizeof answer->name, "%s", policy->name);
    snprintf(answer->label, sizeof answer->label, "%s",
             policy->sim_label != NULL ? policy->sim_label : policy->name);
    answer->outcome =
        setup->limit_bytes == 0 ? FLW_ANALYSIS_NOT_ASKED : run_once(setup, policy, &result);
    answer->smallest_limit_bytes = oom->is_searched ? find_smallest(setup, policy) : FLW_UNKNOWN;
    if (answer->outcome == FLW_ANALYSIS_SERVED && answer->smallest_limit_bytes != FLW_UNKNOWN) {
        answer->smallest_limit_bytes = flw_min(answer->smallest_limit_bytes, setup->limit_bytes);
    }
}

/* Replay with the settings that people try first when PyTorch runs out of memory. Expandable segments are a policy. */
static void ask_settings(const struct flw_run_setup *setup, struct flw_analysis_oom *oom)
{
    static const char *const settings[FLW_ANALYSIS_OOM_SETTINGS] = {
        "pytorch:max_split_size_mb=128", "pytorch:garbage_collection_threshold=0.8",
        "pytorch:roundup_power2_divisions=8"};
    for (size_t i = 0; i < FLW_ANALYSIS_OOM_SETTINGS; i++) {
        struct flw_policy_choice choice;
        char message[FLW_POLICY_MESSAGE_BYTES];
        if (flw_policy_choose(settings[i], strlen(settings[i]), &choice, message)) {
            ask(setup, &choice.policy, oom);
        }
    }
}

/* ---- all policies ---- */

void flw_oom_ask(const struct flw_analysis_setup *setup, struct flw_analysis *analysis)
{
    struct flw_analysis_oom *oom = &analysis->oom;
    struct asking asking;
    if (oom->count == 0) {
        return;
    }
    find_room(analysis);
    oom->is_limit_given = analysis->limit_bytes != 0;
    oom->limit_bytes = oom->is_limit_given ? analysis->limit_bytes : oom->limit_bytes;
    if (setup->policy_count == 0 || oom->asked_bytes == 0 || oom->asked_bytes > MOST_BYTES ||
        oom->live_bytes > MOST_BYTES) {
        return;
    }
    make_asking(analysis->trace, (size_t)oom->event - 1, setup->is_by_time, &asking);
    struct flw_run_setup run = *setup->run;
    run.trace = &asking.trace;
    run.program = asking.program;
    run.limit_bytes = oom->limit_bytes == FLW_UNKNOWN ? 0 : oom->limit_bytes;
    run.device_bytes = flw_max(flw_max(run.device_bytes, flw_align_up(run.limit_bytes, FLW_GIB)),
                               flw_align_up(4 * (oom->asked_bytes + oom->live_bytes), FLW_GIB));
    run.times = false;
    if (asking.program != NULL) {
        oom->is_searched = asking.program->op_count <= MOST_SEARCH_OPS;
        for (size_t i = 0; i < setup->policy_count; i++) {
            if (setup->policies[i]->allocates) {
                ask(&run, setup->policies[i], oom);
            }
        }
        if (!setup->are_policies_named) {
            ask_settings(&run, oom);
        }
    }
    finish_asking(&asking);
}
