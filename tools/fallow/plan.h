/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the commands that replay have in common: which policies, how late work is done, how
 * large the simulated device is, and what of a result must not pass silently.
 */
#ifndef FLW_TOOL_PLAN_H
#define FLW_TOOL_PLAN_H

#include "policy.h"
#include "run.h"

#define FLW_PLAN_POLICIES   32
#define FLW_PLAN_LAG_EVENTS 2000 /* where the trace has no times, or events were asked for */

/* Points into itself: not to be copied. */
struct flw_plan_policies {
    const struct flw_policy *list[FLW_PLAN_POLICIES];
    struct flw_policy_choice choices[FLW_PLAN_POLICIES];
    size_t count;
    bool are_named; /* not the default list */
};

/* The default list: every policy of this build. */
void flw_plan_take_all(struct flw_plan_policies *policies);

/* "A,B": in the place of the list. False: complained, as every parser here. */
bool flw_plan_parse_policies(struct flw_plan_policies *policies, const char *list);

/* The value of an option: a number, of --limit, of --trace-device. */
bool flw_plan_parse_number(const char *option, const char *text, uint64_t *out_value);
bool flw_plan_parse_limit(const char *text, uint64_t *out_bytes);
bool flw_plan_parse_device(const char *text, int *out_device);

/* 80 GiB, more when the recording held more. */
uint64_t flw_plan_device_bytes(const struct flw_trace *trace);

struct flw_plan_lag {
    bool is_by_time; /* in ns of the trace; else in events */
    uint64_t units;
};

/* `events` NULL: nothing was asked for. */
struct flw_plan_lag flw_plan_choose_lag(const struct flw_trace *trace, const uint64_t *events,
                                        bool is_sim);

#define FLW_PLAN_NOTE_BYTES 512

/* One sentence on the trace's private pools: who kept their memory apart. Empty where there are
 * none. */
void flw_plan_say_pools(const struct flw_program *program, const struct flw_run_result *results,
                        size_t count, char out[FLW_PLAN_NOTE_BYTES]);

/* What must not pass silently. False: at least one such thing was said. */
bool flw_plan_complain(const struct flw_run_result *result);

#endif
