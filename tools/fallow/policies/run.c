/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/compare.h"
#include "trace/trace/trace.h"

#include "common/machine.h"
#include "common/tool_host.h"

#define LAST_SHARE 4 /* the last quarter */

/* ---- counts ---- */

/* Clear the figures that only a ledger has. */
static void forget_ledger(struct flw_run_result *result)
{
    memset(&result->account, 0xff, sizeof result->account);
    result->smallest_limit_bytes = FLW_NOT_APPLICABLE;
    result->leaked_bytes = 0;
}

/* Prefer the simulated device's totals over the policy's own. */
static void believe_ledger(struct flw_run_result *result)
{
    const struct flw_device_account *account = &result->account;
    result->is_reserved_from_ledger = true;
    result->statistics.peak_reserved_bytes = account->peak_reserved_bytes;
    result->statistics.driver_call_count = account->driver_call_count;
    result->statistics.event_count = account->event_count;
    result->statistics.wait_count = account->host_wait_count;
}

/* Take the counts up to now. A policy may query the driver for its own; those calls are left out. */
static void take_counts(const struct flw_run *run, struct flw_run_result *result)
{
    struct flw_device *device = run->setup->device;
    forget_ledger(result);
    if (device->is_sim) {
        flw_device_get_account(device, &result->account);
    }
    flw_policy_clear_statistics(&result->statistics);
    run->policy->get_statistics(run->self, &result->statistics);
    if (device->is_sim) {
        flw_device_leave_out(device, &result->account);
        believe_ledger(result);
    }
}

/* Return the counts between two moments. */
static struct flw_run_counts subtract(const struct flw_run_counts *end,
                                      const struct flw_run_counts *begin)
{
    struct flw_run_counts counts;
#define X(member, name)                                                                      \
    counts.member = end->member == FLW_NOT_APPLICABLE || begin->member == FLW_NOT_APPLICABLE \
                        ? FLW_NOT_APPLICABLE                                                 \
                        : end->member - begin->member;
    FLW_RUN_COUNTS(X)
#undef X
    return counts;
}

/* Return the counts of a result after take_counts. */
static struct flw_run_counts get_counts(const struct flw_run_result *result, uint64_t alloc_count)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    return (struct flw_run_counts){.alloc_count = alloc_count,
                                   .driver_call_count = statistics->driver_call_count,
                                   .event_count = statistics->event_count,
                                   .steal_count = statistics->steal_count,
                                   .wait_count = statistics->wait_count,
                                   .remap_wait_count = statistics->remap_wait_count,
                                   .stream_wait_count = result->account.stream_wait_count};
}

static void forget_counts(struct flw_run_counts *counts)
{
    memset(counts, 0xff, sizeof *counts);
}

static struct flw_run_counts count_so_far(const struct flw_run *run, uint64_t alloc_count)
{
    struct flw_run_result result;
    take_counts(run, &result);
    return get_counts(&result, alloc_count);
}

/* ---- passes ---- */

/* Free the blocks that the trace never frees: the policy must be able to release everything. */
static void free_the_rest(struct flw_run *run)
{
    const struct flw_program *program = run->setup->program;
    for (size_t i = 0; i < program->op_count; i++) {
        struct flw_op op = program->ops[i];
        if (op.kind == FLW_OP_ALLOC && run->addresses[op.block] != 0) {
            op.kind = FLW_OP_FREE;
            flw_run_op(run, &op);
        }
    }
}

/* ---- results ---- */

static double in_ns(uint64_t ticks, uint64_t overhead_ticks, double ns_a_tick)
{
    return ticks <= overhead_ticks ? 0.0 : (double)(ticks - overhead_ticks) * ns_a_tick;
}

/* Sort the samples, and return their mean and quantiles. */
static struct flw_run_times sum_up(uint32_t *samples, size_t count, uint64_t overhead_ticks,
                                   double ns_a_tick)
{
    struct flw_run_times times = {.count = count};
    struct {
        double share, *out_ns;
    } quantiles[] = {{0.50, &times.p50_ns},
                     {0.90, &times.p90_ns},
                     {0.99, &times.p99_ns},
                     {0.999, &times.p999_ns},
                     {1.0, &times.max_ns}};
    double ticks = 0;
    if (count == 0) {
        return times;
    }
    qsort(samples, count, sizeof *samples, flw_compare_u32);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        size_t at = (size_t)(quantiles[i].share * (double)(count - 1));
        *quantiles[i].out_ns = in_ns(samples[at], overhead_ticks, ns_a_tick);
    }
    for (size_t i = 0; i < count; i++) {
        ticks += (double)samples[i] - (double)overhead_ticks;
    }
    times.mean_ns = ticks <= 0 ? 0 : ticks / (double)count * ns_a_tick;
    return times;
}

static void take_times(struct flw_run *run, const struct flw_tick_rate *rate,
                       struct flw_run_result *result)
{
    size_t count = run->alloc_sample_count + run->free_sample_count;
    if (count == 0) {
        return;
    }
    double ns_a_tick = flw_ticks_ns(rate);
    uint64_t overhead_ticks = flw_ticks_overhead();
    uint32_t *frees = run->samples + run->sample_capacity - run->free_sample_count;
    result->has_times = true;
    result->alloc_times = sum_up(run->samples, run->alloc_sample_count, overhead_ticks, ns_a_tick);
    result->free_times = sum_up(frees, run->free_sample_count, overhead_ticks, ns_a_tick);
    memmove(run->samples + run->alloc_sample_count, frees, run->free_sample_count * sizeof *frees);
    run->sample_count = count;
    result->all_times = sum_up(run->samples, count, overhead_ticks, ns_a_tick);
    const struct flw_run_observer *observer = run->setup->observer;
    if (observer != NULL && observer->take_times != NULL) {
        observer->take_times(observer->context, run, overhead_ticks, ns_a_tick);
    }
}

/* Take the leaks and violations, after the policy has finished and no work is pending. */
static void take_aftermath(const struct flw_device *device, struct flw_run_result *result)
{
    struct flw_device_account account;
    if (!device->is_sim) {
        return;
    }
    flw_device_get_account(device, &account);
    result->leaked_bytes = account.reserved_bytes;
    result->violation_count = account.violation_count;
    const char *sentence = account.violation_count == 0 ? NULL : device->violation(0);
    snprintf(result->violation, sizeof result->violation, "%s", sentence == NULL ? "" : sentence);
}

/* ---- one policy ---- */

/* Return the first op of the last quarter of a pass, or the end if a quarter has no request. */
static size_t find_quarter(const struct flw_run *run)
{
    const struct flw_program *program = run->setup->program;
    uint64_t left_count = run->pass_alloc_count / LAST_SHARE;
    size_t i = program->op_count;
    while (left_count != 0) {
        left_count -= program->ops[--i].kind == FLW_OP_ALLOC;
    }
    return i;
}

static void make_room(struct flw_run *run)
{
    const struct flw_program *program = run->setup->program;
    run->addresses = flw_host_alloc(program->block_count, sizeof *run->addresses);
    run->sample_every =
        run->setup->sample_every == 0 ? FLW_RUN_SAMPLE_EVERY : run->setup->sample_every;
    size_t a_pass_count = program->op_count / run->sample_every + 1;
    run->sample_capacity = run->setup->times ? a_pass_count * run->setup->pass_count : 0;
    run->samples = flw_host_alloc(run->sample_capacity, sizeof *run->samples);
    for (size_t i = 0; i < program->op_count; i++) {
        run->pass_alloc_count += program->ops[i].kind == FLW_OP_ALLOC;
    }
    forget_counts(&run->before_pass);
    forget_counts(&run->before_quarter);
}

/* Run a pass with one thread; of the last one, note the counts before the last quarter. */
static void run_pass(struct flw_run *run, bool is_last)
{
    size_t end = run->setup->program->op_count;
    size_t quarter = is_last ? find_quarter(run) : end;
    run->sample_wait = 1;
    flw_run_range(run, 0, quarter);
    if (quarter != end) {
        run->before_quarter = count_so_far(run, run->setup->pass_count * run->pass_alloc_count -
                                                    run->pass_alloc_count / LAST_SHARE);
    }
    flw_run_range(run, quarter, end);
}

/* Run all passes. Between two passes, free the blocks that the trace leaves alive. */
static bool run_passes(struct flw_run *run, bool is_threaded, struct flw_run_result *result)
{
    bool is_done = true;
    for (unsigned pass = 0; is_done && pass < run->setup->pass_count; pass++) {
        bool is_last = pass + 1 == run->setup->pass_count;
        if (pass > 0) {
            free_the_rest(run);
        }
        if (is_last && pass > 0) {
            run->before_pass = count_so_far(run, pass * run->pass_alloc_count);
        }
        uint64_t begin_ns = flw_clock_fine_ns();
        if (is_threaded) {
            is_done = flw_run_threaded(run, result->message);
        } else {
            run_pass(run, is_last);
        }
        result->wall_ns += flw_clock_fine_ns() - begin_ns;
    }
    return is_done;
}

static bool execute(struct flw_run *run, struct flw_run_result *result)
{
    const struct flw_run_setup *setup = run->setup;
    bool is_threaded =
        setup->uses_threads && run->policy->is_thread_safe && setup->program->stream_count > 1;
    struct flw_tick_rate rate = flw_ticks_start();
    result->thread_count = is_threaded ? (unsigned)setup->program->stream_count : 1;
    bool is_done = run_passes(run, is_threaded, result);
    take_counts(run, result);
    result->all = get_counts(result, setup->pass_count * run->pass_alloc_count);
    result->last_pass = subtract(&result->all, &run->before_pass);
    result->last_quarter = subtract(&result->all, &run->before_quarter);
    take_times(run, &rate, result);
    result->failure_count = run->failure_count;
    result->first_failure_bytes = run->first_failure_bytes;
    result->peak_requested_bytes =
        is_threaded ? result->statistics.peak_requested_bytes : run->peak_bytes;
    free_the_rest(run);
    result->refused_count = run->refused_count;
    if (is_done && run->has_lost_device) {
        snprintf(result->message, sizeof result->message,
                 "policy %s: the device refused work; it may have been lost", run->policy->name);
        is_done = false;
    }
    return is_done;
}

static bool run_on_device(const struct flw_run_setup *setup,
                          const struct flw_policy_setup *policy_setup,
                          struct flw_run_result *result)
{
    const struct flw_policy *policy = policy_setup->policy;
    struct flw_run run = {.setup = setup, .policy = policy};
    bool is_limited_here = setup->limit_bytes != 0 && policy->limits_by_device;
    struct flw_device_world world = {
        .device_bytes = is_limited_here ? flw_min(setup->limit_bytes, setup->device_bytes)
                                        : setup->device_bytes,
        .lag_units = setup->lag_units,
        .stream_count = setup->program->stream_count + setup->program->lanes.count,
        .crosses_streams = setup->program->crosses_streams || setup->program->lanes.count != 0,
        .checks = setup->checks,
    };
    bool is_done = false;
    if (is_limited_here && !setup->device->is_sim) {
        snprintf(result->message, sizeof result->message,
                 "policy %s cannot be limited on a GPU; leave it out or use --device sim",
                 policy->name);
        return false;
    }
    if (!flw_device_begin(setup->device, &world, result->message)) {
        return false;
    }
    if (policy->is_supported != NULL && !policy->is_supported(setup->device)) {
        snprintf(result->message, sizeof result->message, "policy %s: %s does not support it",
                 policy->name, setup->device->name);
        result->is_unsupported = true;
        goto done;
    }
    make_room(&run);
    run.self = policy->create(policy_setup, result->message);
    if (run.self == NULL) {
        goto done;
    }
    flw_device_start_waits(setup->device);
    is_done = execute(&run, result);
    flw_device_finish_work(setup->device);
    policy->finish(run.self);
    take_aftermath(setup->device, result);
done:
    flw_host_free(run.addresses);
    flw_host_free(run.samples);
    flw_device_end(setup->device);
    return is_done;
}

static void ask_the_trace(struct flw_policy_setup *policy_setup, struct flw_run_result *result)
{
    flw_policy_clear_statistics(&result->statistics);
    policy_setup->policy->get_statistics(policy_setup, &result->statistics);
    forget_ledger(result);
    forget_counts(&result->all);
    forget_counts(&result->last_pass);
    forget_counts(&result->last_quarter);
    result->peak_requested_bytes = result->statistics.peak_requested_bytes;
    result->failure_count = result->statistics.failure_count;
}

bool flw_run_policy(const struct flw_run_setup *setup, const struct flw_policy *policy,
                    struct flw_run_result *result)
{
    struct flw_policy_setup policy_setup = {.policy = policy,
                                            .device = setup->device,
                                            .trace = setup->trace,
                                            .program = setup->program,
                                            .limit_bytes = setup->limit_bytes,
                                            .lag_units = setup->lag_units};
    *result = (struct flw_run_result){.policy = policy, .has_run = true};
    if (policy->allocates) {
        result->has_run = run_on_device(setup, &policy_setup, result);
    } else {
        ask_the_trace(&policy_setup, result);
    }
    return result->has_run;
}

/* ---- the smallest limit */

#define STEP_BYTES (2 * FLW_MIB) /* the search is not finer than a page of physical memory ... */
#define STEP_SHARE 2048          /* ... or this share of the limit */

static bool completes(const struct flw_run_setup *setup, const struct flw_policy *policy,
                      uint64_t limit_bytes)
{
    struct flw_run_setup limited = *setup;
    struct flw_run_result result;
    limited.limit_bytes = limit_bytes;
    limited.times = false;
    limited.pass_count = 1;
    return flw_run_policy(&limited, policy, &result) && result.failure_count == 0;
}

/* Completion is not monotone in the limit: placement is chaotic near the edge. The result is a limit at which the trace
 * completes, and did not one step below. */
uint64_t flw_run_find_limit(const struct flw_run_setup *setup, const struct flw_policy *policy,
                            const struct flw_run_result *unlimited)
{
    if (!policy->allocates) {
        return policy == &flw_policy_bound ? unlimited->statistics.peak_reserved_bytes
                                           : FLW_NOT_APPLICABLE;
    }
    bool is_limitable = setup->device->is_sim || !policy->limits_by_device;
    if (!is_limitable || !unlimited->has_run || unlimited->failure_count != 0) {
        return FLW_NOT_APPLICABLE;
    }
    uint64_t low = flw_align_down(setup->program->max_live_bytes, STEP_BYTES);
    uint64_t high = flw_align_up(unlimited->statistics.peak_reserved_bytes, STEP_BYTES);
    if (low >= high || !completes(setup, policy, high)) {
        high = flw_align_up(2 * unlimited->statistics.peak_reserved_bytes, STEP_BYTES);
        if (!completes(setup, policy, high)) {
            return FLW_NOT_APPLICABLE;
        }
    }
    while (high - low > STEP_BYTES && high - low > high / STEP_SHARE) {
        uint64_t middle = flw_align_down(low + (high - low) / 2, STEP_BYTES);
        if (middle == low) {
            break;
        }
        if (completes(setup, policy, middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}
