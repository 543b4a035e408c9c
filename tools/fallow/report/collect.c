/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: filling an analysis: its head, and each policy's part from a run on the simulated device.
 */
#include "report/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/tool_host.h"
#include "report/observer.h"

#define PROGRESS_OPS 16384 /* ops between two calls of on_progress */
#define TIMED_OPS    1000000
#define DENSE_SAMPLE 5 /* ops between two timed ones, if the program has fewer than TIMED_OPS */

/* Context of an observed run. */
struct collector {
    const struct flw_analysis_setup *setup;
    struct flw_analysis *analysis;
    struct flw_observer observer;
    flw_sim_extent *extents;
    size_t extent_capacity;
    uint64_t seen_peak_bytes; /* of the device's totals */
    size_t step, step_count;  /* runs done, runs to do */
    bool has_lanes;           /* this policy's heap is drawn */
    size_t heap_count;        /* policies with lanes so far */
};

/* ---- the simulated device ---- */

static void list_segments(struct flw_observer *observer, void *context)
{
    struct collector *collector = context;
    const struct flw_device *device = collector->setup->run->device;
    size_t count = device->get_extents(0, collector->extents, collector->extent_capacity);
    if (count > collector->extent_capacity) {
        flw_host_free(collector->extents);
        collector->extent_capacity = 2 * count;
        collector->extents = flw_host_alloc(collector->extent_capacity, sizeof *collector->extents);
        device->get_extents(0, collector->extents, collector->extent_capacity);
    }
    flw_heapview_make_segments(&observer->view, count);
    for (size_t i = 0; i < count; i++) {
        observer->view.segments[i] =
            (struct flw_analysis_segment){.address = collector->extents[i].address,
                                          .bytes = collector->extents[i].bytes,
                                          .stream = UINT16_MAX};
    }
}

static void say_progress(const struct collector *collector, size_t op)
{
    const struct flw_analysis_setup *setup = collector->setup;
    if (setup->on_progress != NULL && op % PROGRESS_OPS == 0) {
        double share = (double)op / (double)collector->analysis->op_count;
        setup->on_progress(setup->context,
                           ((double)collector->step + share) / (double)collector->step_count);
    }
}

static void note_ledger(struct collector *collector, const struct flw_run *run, size_t op)
{
    const struct flw_device *device = run->setup->device;
    struct flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    device->get_ledger(0, &ledger);
    uint64_t peak_bytes = ledger.peak_given_bytes - device->first.given_bytes;
    if (peak_bytes > collector->seen_peak_bytes) { /* may be released within the op */
        collector->seen_peak_bytes = peak_bytes;
        flw_observer_note(&collector->observer, op, run->live_bytes, peak_bytes);
    }
    flw_observer_note(&collector->observer, op, run->live_bytes,
                      ledger.given_bytes - device->first.given_bytes);
}

static void count_calls(const struct flw_device *device, struct flw_analysis_policy *policy)
{
#define X(key, symbol) symbol,
    static const char *const names[FLW_ANALYSIS_CALL_COUNT] = {FLW_ANALYSIS_CALLS(X)};
#undef X
    for (size_t i = 0; i < FLW_ANALYSIS_CALL_COUNT; i++) {
        policy->calls[i] = device->call_count(names[i]);
    }
    policy->has_calls = true;
}

static void after_op(void *context, const struct flw_run *run, size_t i)
{
    struct collector *collector = context;
    struct flw_observer *observer = &collector->observer;
    const struct flw_op *op = &run->setup->program->ops[i];
    observer->view.addresses = run->addresses;
    if (op->kind == FLW_OP_ALLOC) {
        uint64_t address = run->addresses[op->block];
        if (address == 0) {
            flw_observer_fail(observer, i, op->size_bytes);
        } else {
            flw_observer_alloc(
                observer, i, address,
                observer->knows_blocks ? run->policy->block_bytes(run->self, op, address) : 0);
        }
    } else if (flw_op_change(op) != 0 && observer->knows_blocks) {
        observer->block_total_bytes -= observer->block_bytes[op->block];
    }
    note_ledger(collector, run, i);
    flw_observer_end_op(observer, i);
    if (op->kind == FLW_OP_PASS) {
        count_calls(run->setup->device, observer->policy);
    }
    say_progress(collector, i);
}

static void take_times(void *context, const struct flw_run *run, uint64_t overhead_ticks,
                       double ns_a_tick)
{
    struct collector *collector = context;
    struct flw_analysis_policy *policy = collector->observer.policy;
    size_t count = flw_min(run->sample_count, FLW_ANALYSIS_LATENCIES);
    policy->latency_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        size_t at = count == 1 ? 0 : i * (run->sample_count - 1) / (count - 1);
        uint64_t ticks = run->samples[at];
        policy->latency_ns[i] =
            ticks <= overhead_ticks ? 0 : (float)((double)(ticks - overhead_ticks) * ns_a_tick);
    }
}

/* ---- one policy ---- */

/* Run once. Returns false if that fails (see result). *out_is_whole: the heaps of the peaks were kept. */
static bool run_once(struct collector *collector, bool is_again, struct flw_run_result *result,
                     bool *out_is_whole)
{
    const struct flw_policy *which = result->policy;
    struct flw_run_setup run = *collector->setup->run;
    struct flw_run_observer observer = {.after_op = after_op, .context = collector};
    run.observer = &observer;
    run.times = false;
    collector->seen_peak_bytes = 0;
    collector->observer = (struct flw_observer){.analysis = collector->analysis,
                                                .policy = collector->observer.policy,
                                                .is_again = is_again,
                                                .knows_blocks = which->block_bytes != NULL,
                                                .knows_reserved = true,
                                                .has_lanes = collector->has_lanes,
                                                .list_segments = list_segments,
                                                .context = collector};
    flw_observer_begin(&collector->observer);
    bool is_done = flw_run_policy(&run, which, result);
    *out_is_whole = flw_observer_finish(&collector->observer);
    return is_done;
}

/* Time the first TIMED_OPS only, so that timing a long program does not cost a complete second run. */
static bool run_for_times(struct collector *collector, struct flw_run_result *result)
{
    struct flw_run_setup run = *collector->setup->run;
    struct flw_program program = *run.program;
    struct flw_run_observer observer = {.take_times = take_times, .context = collector};
    program.op_count = (size_t)flw_min(program.op_count, TIMED_OPS);
    run.program = &program;
    run.observer = &observer;
    run.checks = false;
    run.sample_every = program.op_count < TIMED_OPS ? DENSE_SAMPLE : 0;
    bool is_done = flw_run_policy(&run, result->policy, result);
    collector->step++;
    return is_done;
}

/* Run a policy; the result has the figures of the measured run and the times of another one. */
static bool run_policy(struct collector *collector, struct flw_run_result *result)
{
    struct flw_run_result timed = *result;
    bool is_whole = false;
    if (collector->setup->run->times && !run_for_times(collector, &timed)) {
        *result = timed;
        return false;
    }
    bool is_done = run_once(collector, false, result, &is_whole);
    if (is_done && !is_whole) {
        flw_analysis_drop(collector->observer.policy);
        is_done = run_once(collector, true, result, &is_whole);
    }
    collector->step++;
    result->has_times = timed.has_times;
    result->all_times = timed.all_times;
    result->alloc_times = timed.alloc_times;
    result->free_times = timed.free_times;
    result->wall_ns = timed.wall_ns;
    return is_done;
}

static bool collect_policy(struct collector *collector, const struct flw_policy *which,
                           struct flw_analysis_policy *policy, struct flw_run_result *result)
{
    const char *label = which->sim_label != NULL ? which->sim_label : which->name;
    *result = (struct flw_run_result){.policy = which};
    policy->result = result;
    snprintf(policy->label, sizeof policy->label, "%s", label);
    collector->observer.policy = policy;
    collector->has_lanes =
        collector->heap_count == 0 || strcmp(which->name, flw_policy_pytorch.name) == 0;
    collector->heap_count += which->allocates;
    if (which->allocates) {
        return run_policy(collector, result);
    }
    if (!flw_run_policy(collector->setup->run, which, result)) {
        return false;
    }
    collector->step += 1 + (size_t)collector->setup->run->times;
    if (strcmp(which->name, flw_policy_bound.name) == 0) {
        flw_collect_bound(collector->analysis, policy);
    } else {
        flw_collect_record(collector->analysis, policy);
    }
    return true;
}

/* ---- the analysis ---- */

static void fill_head(const struct flw_analysis_setup *setup, struct flw_analysis *analysis)
{
    const struct flw_run_setup *run = setup->run;
    const struct flw_trace *trace = analysis->trace;
    const char *source = trace->source == NULL ? "?" : trace->source;
    const char *slash = strrchr(source, '/');
    int bytes = 0;
    const char *devices = flw_notes_find_devices(trace->notes, &bytes);
    snprintf(analysis->title, sizeof analysis->title, "%s",
             slash == NULL || slash[1] == '\0' ? source : slash + 1);
    flw_make_plain(analysis->title);
    if (devices != NULL) {
        snprintf(analysis->of_devices, sizeof analysis->of_devices,
                 "device %d of %.*s; --trace-device chooses", trace->device, bytes, devices);
    }
    analysis->is_overwritten = flw_notes_find(trace->notes, FLW_NOTES_OVERWRITTEN, &bytes) != NULL;
    analysis->lag_units = run->lag_units;
    analysis->limit_bytes = run->limit_bytes;
    analysis->is_by_time = setup->is_by_time;
    analysis->without_wait_bytes = flw_bound_without_wait(analysis->program, run->lag_units);
    analysis->op_count = analysis->program->op_count;
    analysis->initial_op_count = analysis->program->initial_count;
    analysis->has_times = trace->has_times;
}

static bool collect_policies(const struct flw_analysis_setup *setup, struct flw_analysis *analysis,
                             char *message)
{
    struct collector collector = {.setup = setup,
                                  .analysis = analysis,
                                  .step_count =
                                      (1 + (size_t)setup->run->times) * analysis->policy_count};
    bool is_done = true;
    for (size_t i = 0; is_done && i < analysis->policy_count; i++) {
        const struct flw_policy *which =
            analysis->is_state ? &flw_policy_recorded : setup->policies[i];
        is_done = collect_policy(&collector, which, &analysis->policies[i], &analysis->results[i]);
        if (!is_done) {
            snprintf(message, FLW_RUN_MESSAGE_BYTES, "%s", analysis->results[i].message);
        }
    }
    flw_host_free(collector.extents);
    return is_done;
}

/* A heap without a history is not replayed: a replay would contain only the live blocks, while the recorded allocator
 * would be charged with its idle memory as well. */
bool flw_analysis_collect(const struct flw_analysis_setup *setup, struct flw_analysis *analysis,
                          char *message)
{
    const struct flw_trace *trace = analysis->trace;
    fill_head(setup, analysis);
    analysis->is_state = flw_plan_lacks_history(trace);
    analysis->policy_count =
        analysis->is_state ? flw_min(setup->policy_count, 1) : setup->policy_count;
    analysis->policies = flw_host_alloc(analysis->policy_count, sizeof *analysis->policies);
    analysis->results = flw_host_alloc(analysis->policy_count, sizeof *analysis->results);
    flw_collect_program(analysis, setup->rule);
    if (!collect_policies(setup, analysis, message)) {
        return false;
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        analysis->pending_bytes += trace->blocks[i].waits ? trace->blocks[i].size_bytes : 0;
        analysis->pending_count += trace->blocks[i].waits;
    }
    if (!analysis->is_state) {
        analysis->unused_bytes = flw_collect_unused(trace);
        analysis->is_share_unknown = trace->segment_count != 0 && trace->segments[0].address == 0;
        flw_plan_say_pools(analysis->program, analysis->results, analysis->policy_count,
                           analysis->pools_note);
    }
    flw_oom_ask(setup, analysis);
    flw_verdict_fill(analysis);
    FLW_ASSERT_VALID(flw_analysis_is_valid(analysis));
    return true;
}
