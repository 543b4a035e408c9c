/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the conclusions from an analysis: the policy of reference, the policy that holds least, the headline, and a sentence
 * about both policies.
 */
#include "report/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/figures.h"

static bool holds_anything(const struct flw_run_result *result)
{
    uint64_t bytes = result->statistics.peak_reserved_bytes;
    return bytes != FLW_NOT_APPLICABLE && bytes != 0;
}

/* Return the policy of that name if it held memory, else NULL. */
static const struct flw_analysis_policy *find(const struct flw_analysis *analysis, const char *name)
{
    const struct flw_analysis_policy *policy = flw_analysis_find(analysis, name);
    return policy != NULL && holds_anything(policy->result) ? policy : NULL;
}

/* Find the user's present policy: the recorded allocator if the trace contains the reserved memory and the part reserved
 * before the recording; else the model of PyTorch's policy, else the first policy that allocates. NULL if no memory was
 * held. */
static const struct flw_analysis_policy *find_reference(const struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *reference =
        analysis->is_share_unknown ? NULL : find(analysis, "recorded");
    if (reference == NULL) {
        reference = find(analysis, "pytorch");
    }
    for (size_t i = 0; reference == NULL && i < analysis->policy_count; i++) {
        const struct flw_run_result *result = analysis->policies[i].result;
        if (result->policy->allocates && holds_anything(result)) {
            reference = &analysis->policies[i];
        }
    }
    return reference;
}

/* Find the policy that holds least among the policies that allocate and failed no request, or NULL. The driver alone does
 * not count: it holds least by making every free wait. */
static const struct flw_analysis_policy *find_best(const struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *best = NULL;
    for (size_t i = 0; i < analysis->policy_count; i++) {
        const struct flw_run_result *result = analysis->policies[i].result;
        bool counts = result->policy->allocates && result->failure_count == 0 &&
                      strcmp(result->policy->name, flw_policy_driver.name) != 0 &&
                      result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
        if (counts && (best == NULL || result->statistics.peak_reserved_bytes <
                                           best->result->statistics.peak_reserved_bytes)) {
            best = &analysis->policies[i];
        }
    }
    return best;
}

static const char *name_recorded(const struct flw_analysis *analysis)
{
    const char *format = analysis->trace->format;
    return format != NULL && strstr(format, "pytorch") != NULL ? "PyTorch"
                                                               : "the recorded allocator";
}

/* True if `reference` is PyTorch's allocator without expandable segments, recorded or modelled. */
static bool is_of_pytorch(const struct flw_analysis *analysis,
                          const struct flw_analysis_policy *reference)
{
    return reference->result->policy->allocates
               ? strcmp(reference->result->policy->name, flw_policy_pytorch.name) == 0
               : strcmp(name_recorded(analysis), "PyTorch") == 0;
}

/* ---- headline ---- */

#define HEAD(...) flw_append(analysis->headline, sizeof analysis->headline, __VA_ARGS__)

/* Append the three largest owners of a moment if they are code. */
static void add_owners(struct flw_analysis *analysis, enum flw_analysis_moment moment)
{
    const struct flw_analysis_holding *holding = &analysis->holdings[moment];
    for (size_t i = 0; analysis->has_code && i < flw_min(holding->owner_count, 3); i++) {
        HEAD("%s%s %s", i == 0 ? "; largest owners: " : ", ", FLW_SIZE(holding->owners[i].bytes),
             holding->owners[i].name);
    }
}

/* Describe the heap of an analysis without a history. */
static void write_state(struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *recorded =
        flw_analysis_find(analysis, flw_policy_recorded.name);
    const struct flw_analysis_frame *frame =
        recorded == NULL ? NULL : flw_analysis_frame(recorded, "end");
    HEAD("%s live", FLW_SIZE(analysis->trace->peak_requested_bytes - analysis->pending_bytes));
    if (analysis->pending_count != 0) {
        HEAD(", %s freed and waiting for other streams (record_stream)",
             FLW_SIZE(analysis->pending_bytes));
    }
    if (frame != NULL) {
        HEAD(" of %s that %s reserved", FLW_SIZE(frame->reserved_bytes), name_recorded(analysis));
        HEAD("; %s free in %s hole%s", FLW_SIZE(frame->hole_bytes), FLW_COUNT(frame->hole_count),
             flw_plural(frame->hole_count));
        HEAD(", the largest of %s", FLW_SIZE(frame->largest_hole_bytes));
    }
}

static void write_oom(struct flw_analysis *analysis)
{
    const struct flw_analysis_oom *oom = &analysis->oom;
    HEAD("out of memory at event %s: %s requested %s with %s live", FLW_COUNT(oom->event),
         oom->owner[0] != '\0' ? oom->owner : "unknown code", FLW_SIZE(oom->asked_bytes),
         FLW_SIZE(oom->live_bytes));
    add_owners(analysis, FLW_ANALYSIS_AT_OOM);
}

static void write_peak(struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *recorded = find(analysis, flw_policy_recorded.name);
    const struct flw_analysis_columns *columns = &analysis->columns;
    HEAD("peak live memory %s", FLW_SIZE(analysis->program->max_live_bytes));
    if (columns->time_ns != NULL) {
        uint64_t time_ns = columns->time_ns[flw_analysis_column(columns, analysis->peak_op)];
        HEAD(" after %s", FLW_TIME((double)time_ns));
    } else if (analysis->op_count != 0) {
        HEAD(", %.0f %% into the recording",
             100.0 * (double)analysis->peak_op / (double)analysis->op_count);
    }
    if (recorded != NULL) {
        HEAD("; %s reserved %s", name_recorded(analysis),
             FLW_SIZE(recorded->result->statistics.peak_reserved_bytes));
    }
    add_owners(analysis, FLW_ANALYSIS_AT_PEAK);
}

/* ---- verdict ---- */

#define SAY(...) flw_append(analysis->verdict, sizeof analysis->verdict, __VA_ARGS__)

static void write_failures(struct flw_analysis *analysis)
{
    for (size_t i = 0; i < analysis->policy_count; i++) {
        const struct flw_analysis_policy *policy = &analysis->policies[i];
        if (policy->result->policy->allocates && policy->result->failure_count != 0) {
            SAY("Every policy failed a request; the first that %s failed was %s.", policy->label,
                FLW_SIZE(policy->first_failure_bytes));
            return;
        }
    }
    SAY("%s", analysis->program->max_live_bytes == 0
                  ? "The trace allocates no memory."
                  : "No policy that allocates memory was replayed.");
}

/* "PyTorch reserved 24.0 GiB", with the part that the recording did not use, and expandable segments. */
static void write_reference(struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    const struct flw_analysis_policy *expandable =
        find(analysis, flw_policy_pytorch_expandable.name);
    uint64_t held_bytes = flw_analysis_held(analysis, reference);
    if (reference->result->policy->allocates) {
        SAY("%s would reserve %s", reference->label, FLW_SIZE(held_bytes));
    } else {
        const char *name = name_recorded(analysis);
        SAY("%c%s reserved %s", name[0] == 't' ? 'T' : name[0], name + 1, FLW_SIZE(held_bytes));
    }
    if (held_bytes != reference->result->statistics.peak_reserved_bytes) {
        SAY(" (without %s from before the recording, which it did not use)",
            FLW_SIZE(analysis->unused_bytes));
    }
    if (expandable != NULL && expandable != analysis->best && is_of_pytorch(analysis, reference)) {
        SAY(" (%s with expandable segments)", FLW_SIZE(flw_analysis_held(analysis, expandable)));
    }
}

static void write_comparison(struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    const struct flw_analysis_policy *best = analysis->best;
    const struct flw_analysis_policy *driver = find(analysis, flw_policy_driver.name);
    if (best == NULL || reference == NULL) {
        write_failures(analysis);
        return;
    }
    uint64_t held_bytes = flw_analysis_held(analysis, reference);
    uint64_t least_bytes = best->result->statistics.peak_reserved_bytes;
    write_reference(analysis);
    if (best != reference && least_bytes < held_bytes) {
        SAY("; %s would reserve %s, %s (%.1f %%) less.", best->label, FLW_SIZE(least_bytes),
            FLW_SIZE(held_bytes - least_bytes),
            100.0 * (double)(held_bytes - least_bytes) / (double)held_bytes);
    } else if (driver != NULL && driver->result->failure_count == 0 &&
               flw_analysis_held(analysis, driver) < held_bytes) {
        SAY("; only the driver alone would reserve less: %s, waiting at each free.",
            FLW_SIZE(flw_analysis_held(analysis, driver)));
    } else {
        SAY("; no other policy would reserve less.");
    }
}

void flw_verdict_fill(struct flw_analysis *analysis)
{
    analysis->reference = find_reference(analysis);
    analysis->best = find_best(analysis);
    if (analysis->is_state) {
        write_state(analysis);
        snprintf(analysis->verdict, sizeof analysis->verdict, "%.*s",
                 (int)sizeof analysis->verdict - 1, analysis->headline);
    } else {
        (analysis->oom.count != 0 ? write_oom : write_peak)(analysis);
        write_comparison(analysis);
    }
    flw_verdict_advise(analysis);
}
