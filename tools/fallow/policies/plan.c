/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/setting.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/replay_device.h"

#define DEFAULT_LAG_NS 5000000ull
#define LAG_MOST       (UINT64_MAX / 4) /* most that fits the device's clock */
#define DEFAULT_DEVICE (80 * FLW_GIB)

/* ---- the policies of this build ---- */

static const struct flw_policy *const built[] = {
    &flw_policy_fallow,
    &flw_policy_fallow_memory_first,
    &flw_policy_fallow_speed_first,
    &flw_policy_driver,
    &flw_policy_async,
    &flw_policy_pytorch,
    &flw_policy_pytorch_expandable,
    &flw_policy_recorded,
    &flw_policy_bound,
};

const struct flw_policy *flw_policy_get(size_t i)
{
    return i < sizeof built / sizeof *built ? built[i] : NULL;
}

bool flw_policy_choose(const char *text, size_t length, struct flw_policy_choice *out,
                       char *message)
{
    const char *colon = memchr(text, ':', length);
    size_t name_length = colon == NULL ? length : (size_t)(colon - text);
    const struct flw_policy *base = NULL;
    for (size_t i = 0; base == NULL && i < sizeof built / sizeof *built; i++) {
        const char *name = built[i]->name;
        bool is_it = strlen(name) == name_length && memcmp(name, text, name_length) == 0;
        base = is_it ? built[i] : NULL;
    }
    if (base == NULL) {
        struct flw_guess guess = {.word = text, .length = name_length};
        char hint[FLW_GUESS_BYTES];
        for (size_t i = 0; i < sizeof built / sizeof *built; i++) {
            flw_guess_offer(&guess, built[i]->name);
        }
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "there is no policy '%.*s'%sfallow replay --help lists them",
                 (int)(name_length < 64 ? name_length : 64), text, flw_guess_say(&guess, "", hint));
        return false;
    }
    if (colon != NULL && name_length + 1 == length) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES,
                 "policy %s: no setting follows the colon; leave the colon out", base->name);
        return false;
    }
    size_t settings_length = colon == NULL ? 0 : length - name_length - 1;
    return flw_policy_set(base, text + length - settings_length, settings_length, out, message);
}

/* ---- what was asked for ---- */

void flw_plan_init(struct flw_plan *plan)
{
    struct flw_plan_policies *policies = &plan->policies;
    *plan = (struct flw_plan){.trace_device = -1};
    for (size_t i = 0; i < FLW_PLAN_POLICIES && flw_policy_get(i) != NULL; i++) {
        policies->list[policies->count++] = flw_policy_get(i);
    }
}

static bool contains(const struct flw_plan_policies *policies, const char *name)
{
    size_t i = 0;
    while (i < policies->count && strcmp(policies->list[i]->name, name) != 0) {
        i++;
    }
    return i < policies->count;
}

bool flw_plan_take_policies(void *member, const char *list)
{
    struct flw_plan_policies *policies = member;
    policies->count = 0;
    policies->are_named = true;
    for (const char *name = list;; name++) {
        size_t length = flw_policy_length(name);
        if (policies->count == FLW_PLAN_POLICIES) {
            return flw_complain("more than %d policies; replay them in turn", FLW_PLAN_POLICIES);
        }
        char message[FLW_POLICY_MESSAGE_BYTES];
        struct flw_policy_choice *choice = &policies->choices[policies->count];
        if (!flw_policy_choose(name, length, choice, message)) {
            return flw_complain("%s", message);
        }
        if (contains(policies, choice->policy.name)) {
            return flw_complain("--policy has '%s' twice", choice->policy.name);
        }
        policies->list[policies->count++] = &choice->policy;
        name += length;
        if (*name == '\0') {
            return true;
        }
    }
}

void flw_plan_complete(struct flw_plan_policies *policies)
{
    bool has_fallow = false, has_pytorch = false, has_expandable = false;
    for (size_t i = 0; i < policies->count; i++) {
        const struct flw_policy *policy = policies->list[i];
        bool is_pytorch = policy->create == flw_policy_pytorch.create;
        bool is_expandable = policy->variant == flw_policy_pytorch_expandable.variant;
        has_fallow |= policy->create == flw_policy_fallow.create;
        has_pytorch |= is_pytorch && !is_expandable;
        has_expandable |= is_pytorch && is_expandable;
    }
    if (has_fallow && has_pytorch && !has_expandable && policies->count < FLW_PLAN_POLICIES) {
        policies->list[policies->count++] = &flw_policy_pytorch_expandable;
    }
}

bool flw_plan_lacks_history(const struct flw_trace *trace)
{
    bool has_history = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        has_history |= trace->events[i].op <= FLW_TRACE_OOM;
    }
    return !has_history && (trace->initial_count != 0 || trace->segment_count != 0);
}

uint64_t flw_plan_device_bytes(const struct flw_trace *trace)
{
    uint64_t need_bytes = flw_max(trace->peak_requested_bytes, trace->recorded_peak_reserved_bytes);
    if (need_bytes <= DEFAULT_DEVICE || need_bytes > UINT64_MAX / 4) {
        return DEFAULT_DEVICE;
    }
    return flw_align_up(need_bytes + need_bytes / 4, FLW_GIB);
}

/* Return the nanoseconds of a unit; 0: unknown. */
static uint64_t unit_ns(const char *text)
{
    return strcmp(text, "us") == 0   ? 1000
           : strcmp(text, "ms") == 0 ? 1000000
           : strcmp(text, "s") == 0  ? 1000000000
                                     : 0;
}

bool flw_plan_take_lag(void *member, const char *text)
{
    struct flw_plan_lag lag = {.is_given = true};
    const char *unit = flw_number_read(text, 10, &lag.units);
    uint64_t scale = unit == NULL ? 0 : *unit == '\0' ? 1 : unit_ns(unit);
    if (scale == 0 || lag.units > LAG_MOST / scale) {
        return flw_complain(
            "--lag '%s' is neither a number of events, such as 2000, nor a time, such as "
            "200us, 5ms or 1s",
            text);
    }
    lag.units *= scale;
    lag.is_by_time = *unit != '\0' && lag.units != 0;
    *(struct flw_plan_lag *)member = lag;
    return true;
}

bool flw_plan_choose_lag(const struct flw_plan *plan, const struct flw_trace *trace, bool is_sim,
                         struct flw_plan_lag *out)
{
    *out = plan->lag;
    if (!out->is_given) {
        out->is_by_time = trace->has_times && is_sim;
        out->units = out->is_by_time ? DEFAULT_LAG_NS : FLW_PLAN_LAG_EVENTS;
    }
    if (out->is_by_time && !trace->has_times) {
        return flw_complain(
            "%s has no times, so that no lag can be in times; give it in events: --lag %d",
            trace->source == NULL ? "the trace" : trace->source, FLW_PLAN_LAG_EVENTS);
    }
    return true;
}

/* List the policies that do, or do not, keep pools apart. */
static size_t list_names(const struct flw_run_result *results, size_t count, bool keeps_apart,
                         char *out, size_t room)
{
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct flw_policy *policy = results[i].policy;
        if (policy->allocates && policy->keeps_pools_apart == keeps_apart && length < room) {
            length += (size_t)snprintf(out + length, room - length, "%s%s", length == 0 ? "" : ", ",
                                       policy->name);
        }
    }
    return length;
}

void flw_plan_say_pools(const struct flw_program *program, const struct flw_run_result *results,
                        size_t count, char out[FLW_PLAN_NOTE_BYTES])
{
    char apart[FLW_PLAN_NOTE_BYTES / 2];
    char shared[FLW_PLAN_NOTE_BYTES / 2];
    size_t pool_count = program->lanes.pool_count;
    out[0] = '\0';
    if (pool_count == 0) {
        return;
    }
    size_t apart_length = list_names(results, count, true, apart, sizeof apart);
    size_t shared_length = list_names(results, count, false, shared, sizeof shared);
    snprintf(out, FLW_PLAN_NOTE_BYTES, "%zu private pool%s (captured graphs)%s%.150s%s%.150s",
             pool_count, flw_plural(pool_count), apart_length == 0 ? "" : ", kept apart by ", apart,
             shared_length == 0 ? "" : "; shared with other memory by ", shared);
}

void flw_plan_print_counts(const struct flw_run_counts *counts, struct flw_json_writer *out)
{
#define X(member, name) flw_json_count(out, name, counts->member);
    FLW_RUN_COUNTS(X)
#undef X
}

void flw_plan_print_quarter(const struct flw_run_result *result, struct flw_json_writer *out)
{
    if (result->last_quarter.alloc_count == FLW_NOT_APPLICABLE) {
        flw_json_null(out, "last_quarter");
        return;
    }
    flw_json_begin(out, "last_quarter", '{');
    flw_plan_print_counts(&result->last_quarter, out);
    flw_json_end(out, '}');
}

bool flw_plan_complain(const struct flw_run_result *result)
{
    const char *name = result->policy->name;
    bool is_good = true;
    if (result->violation_count != 0) {
        flw_complain("policy %s broke a rule %llu times; the first: %s", name,
                     (unsigned long long)result->violation_count, result->violation);
        is_good = false;
    }
    if (result->refused_count != 0) {
        flw_complain("policy %s refused %llu frees or uses of its own blocks", name,
                     (unsigned long long)result->refused_count);
        is_good = false;
    }
    if (result->leaked_bytes != 0) {
        flw_complain("policy %s still held %llu bytes at its end", name,
                     (unsigned long long)result->leaked_bytes);
        is_good = false;
    }
    return is_good;
}
