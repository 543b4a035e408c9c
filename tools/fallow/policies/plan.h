/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the commands that replay have in common: which policies, how late work is done, how
 * large the simulated device is, and what of a result must not pass silently.
 */
#ifndef FLW_TOOL_PLAN_H
#define FLW_TOOL_PLAN_H

#include "common/options.h"
#include "policies/policy.h"
#include "policies/run.h"

struct flw_json_writer;

#define FLW_PLAN_POLICIES   32
#define FLW_PLAN_LAG_EVENTS 2000 /* where the trace has no times, or events were asked for */

/* Points into itself: not to be copied. */
struct flw_plan_policies {
    const struct flw_policy *list[FLW_PLAN_POLICIES];
    struct flw_policy_choice choices[FLW_PLAN_POLICIES];
    size_t count;
    bool are_named; /* not the default list */
};

/* How much later than it was given work is done. */
struct flw_plan_lag {
    uint64_t units;  /* 0: no device work */
    bool is_by_time; /* in ns of the trace; else in events */
    bool is_given;   /* by --lag */
};

/* What --policy, --lag, --limit and --trace-device ask for. */
struct flw_plan {
    struct flw_plan_policies policies;
    struct flw_plan_lag lag;
    uint64_t limit_bytes; /* 0: none */
    int trace_device;     /* -1: let flw_trace_read choose */
};

/* The four, of a command whose settings have a struct flw_plan as `member`. */
#define FLW_PLAN_OPTIONS(settings, member)                                                      \
    {.name = "policy",                                                                          \
     .kind = FLW_OPTION_TAKE,                                                                   \
     .offset = offsetof(settings, member.policies),                                             \
     .take = flw_plan_take_policies},                                                           \
        {.name = "lag",                                                                         \
         .kind = FLW_OPTION_TAKE,                                                               \
         .offset = offsetof(settings, member.lag),                                              \
         .take = flw_plan_take_lag},                                                            \
        {.name = "limit",                                                                       \
         .kind = FLW_OPTION_BYTES,                                                              \
         .offset = offsetof(settings, member.limit_bytes)},                                     \
    {                                                                                           \
        .name = "trace-device", .kind = FLW_OPTION_TAKE,                                        \
        .offset = offsetof(settings, member.trace_device), .take = flw_option_take_trace_device \
    }

/* Nothing was asked for: every policy of this build. */
void flw_plan_init(struct flw_plan *plan);

/* For FLW_OPTION_TAKE: the list of --policy, into a struct flw_plan_policies. */
bool flw_plan_take_policies(void *member, const char *list);

/* Add PyTorch's expandable segments to a comparison of Fallow with PyTorch without them: users can enable that
 * setting at no cost. */
void flw_plan_complete(struct flw_plan_policies *policies);

/* For FLW_OPTION_TAKE: events, or a time with its unit, into a struct flw_plan_lag. */
bool flw_plan_take_lag(void *member, const char *text);

/* True if the trace has blocks or segments but no events. */
bool flw_plan_lacks_history(const struct flw_trace *trace);

/* 80 GiB, more when the recording held more. */
uint64_t flw_plan_device_bytes(const struct flw_trace *trace);

/* What was asked for, else the default. False: a lag in times was asked for, the trace has none,
 * and that was said. */
bool flw_plan_choose_lag(const struct flw_plan *plan, const struct flw_trace *trace, bool is_sim,
                         struct flw_plan_lag *out);

/* What the tables call the bound of allocators that make no one wait (flw_bound_without_wait) ... */
#define FLW_PLAN_WITHOUT_WAIT "bound, no wait"

/* ... and whether it can be above the bound: with one stream, or no work, there is nothing to wait for. */
static inline bool flw_plan_may_wait(const struct flw_program *program, uint64_t lag_units)
{
    return program->stream_count > 1 && lag_units != 0;
}

#define FLW_PLAN_NOTE_BYTES 512

/* One sentence on the trace's private pools: who kept their memory apart. Empty where there are
 * none. */
void flw_plan_say_pools(const struct flw_program *program, const struct flw_run_result *results,
                        size_t count, char out[FLW_PLAN_NOTE_BYTES]);

/* The members of an object of JSON, and the object `last_quarter`, or null. */
void flw_plan_print_counts(const struct flw_run_counts *counts, struct flw_json_writer *out);
void flw_plan_print_quarter(const struct flw_run_result *result, struct flw_json_writer *out);

/* What must not pass silently. False: at least one such thing was said. */
bool flw_plan_complain(const struct flw_run_result *result);

#endif
