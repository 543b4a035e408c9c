/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of the commands that replay: the choice of policies, the lag of work, the size of the simulated
 * device, and warnings about results.
 */
#ifndef FLW_TOOL_PLAN_H
#define FLW_TOOL_PLAN_H

#include "common/options.h"
#include "policies/policy.h"
#include "policies/run.h"

struct flw_json_writer;

#define FLW_PLAN_POLICIES   32
#define FLW_PLAN_LAG_EVENTS 2000 /* if the trace has no times, or the lag is in events */

/* Points into itself: do not copy. */
struct flw_plan_policies {
    const struct flw_policy *list[FLW_PLAN_POLICIES];
    struct flw_policy_choice choices[FLW_PLAN_POLICIES];
    size_t count;
    bool are_named; /* not the default list */
};

/* Time from the submission to the completion of work. */
struct flw_plan_lag {
    uint64_t units;  /* 0: no device work */
    bool is_by_time; /* in ns of the trace; else in events */
    bool is_given;   /* by --lag */
};

/* Values of --policy, --lag, --limit and --trace-device. */
struct flw_plan {
    struct flw_plan_policies policies;
    struct flw_plan_lag lag;
    uint64_t limit_bytes; /* 0: none */
    int trace_device;     /* -1: let flw_trace_read choose */
};

/* These four options, for a command with a struct flw_plan as `member` of the settings. */
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

/* Set the defaults: every policy of this build. */
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

/* Return the size of the simulated device: 80 GiB, or more if the recording held more. */
uint64_t flw_plan_device_bytes(const struct flw_trace *trace);

/* Choose the lag of the command line, else the default. Returns false after printing a message if the lag is a time and
 * the trace has no times. */
bool flw_plan_choose_lag(const struct flw_plan *plan, const struct flw_trace *trace, bool is_sim,
                         struct flw_plan_lag *out);

/* Label of the bound of allocators that never wait (flw_bound_without_wait). */
#define FLW_PLAN_WITHOUT_WAIT "bound, no wait"

/* True if that bound can exceed the bound: with one stream or without work there is nothing to wait for. */
static inline bool flw_plan_may_wait(const struct flw_program *program, uint64_t lag_units)
{
    return program->stream_count > 1 && lag_units != 0;
}

#define FLW_PLAN_NOTE_BYTES 512

/* Write one sentence about the trace's private pools and the policies that keep their memory apart; "" if there are
 * none. */
void flw_plan_say_pools(const struct flw_program *program, const struct flw_run_result *results,
                        size_t count, char out[FLW_PLAN_NOTE_BYTES]);

/* Print the counts as members of a JSON object, and the object `last_quarter`, or null. */
void flw_plan_print_counts(const struct flw_run_counts *counts, struct flw_json_writer *out);
void flw_plan_print_quarter(const struct flw_run_result *result, struct flw_json_writer *out);

/* Print warnings about a result. Returns false if there was any. */
bool flw_plan_complain(const struct flw_run_result *result);

#endif
