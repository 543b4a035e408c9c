/* SPDX-License-Identifier: Apache-2.0 */
#include "report/verdict.h"

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

static const struct flw_sheet_policy *find(const struct flw_sheet *sheet, const char *name)
{
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        if (strcmp(result->policy->name, name) == 0 && holds_anything(result)) {
            return &sheet->policies[i];
        }
    }
    return NULL;
}

const struct flw_sheet_policy *flw_verdict_reference(const struct flw_sheet *sheet)
{
    const struct flw_sheet_policy *reference =
        sheet->is_share_unknown ? NULL : find(sheet, "recorded");
    if (reference == NULL) {
        reference = find(sheet, "pytorch");
    }
    for (size_t i = 0; reference == NULL && i < sheet->policy_count; i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        if (result->policy->allocates && holds_anything(result)) {
            reference = &sheet->policies[i];
        }
    }
    return reference;
}

const struct flw_sheet_policy *flw_verdict_best(const struct flw_sheet *sheet)
{
    const struct flw_sheet_policy *best = NULL;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        bool counts = result->policy->allocates && result->failure_count == 0 &&
                      strcmp(result->policy->name, flw_policy_driver.name) != 0 &&
                      result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
        if (counts && (best == NULL || result->statistics.peak_reserved_bytes <
                                           best->result->statistics.peak_reserved_bytes)) {
            best = &sheet->policies[i];
        }
    }
    return best;
}

/* True if `reference` is PyTorch's allocator without expandable segments, recorded or modelled. */
static bool is_of_pytorch(const struct flw_sheet *sheet, const struct flw_sheet_policy *reference)
{
    const char *format = sheet->trace->format;
    return reference->result->policy->allocates
               ? strcmp(reference->result->policy->name, flw_policy_pytorch.name) == 0
               : format != NULL && strstr(format, "pytorch") != NULL;
}

static const char *name_recorded(const struct flw_sheet *sheet)
{
    const char *format = sheet->trace->format;
    return format != NULL && strstr(format, "pytorch") != NULL ? "PyTorch"
                                                               : "the recorded allocator";
}

/* ---- headline ---- */

/* Append the three largest owners of a moment if they are code. */
static void add_owners(const struct flw_sheet *sheet, enum flw_sheet_moment moment, char *out,
                       size_t room)
{
    const struct flw_sheet_holding *holding = &sheet->holdings[moment];
    char size[FLW_FIGURE_BYTES];
    for (size_t i = 0; sheet->has_code && i < flw_min(holding->owner_count, 3); i++) {
        flw_append(out, room, "%s%s %s", i == 0 ? "; largest owners: " : ", ",
                   flw_format_size(holding->owners[i].bytes, size), holding->owners[i].name);
    }
}

/* Describe the heap of a sheet without a history. */
static void write_state(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *recorded = flw_sheet_find(sheet, flw_policy_recorded.name);
    const struct flw_sheet_frame *frame =
        recorded == NULL ? NULL : flw_sheet_frame(recorded, "end");
    char size[FLW_FIGURE_BYTES], count[FLW_FIGURE_BYTES];
    flw_append(out, room, "%s live",
               flw_format_size(sheet->trace->peak_requested_bytes - sheet->pending_bytes, size));
    if (sheet->pending_count != 0) {
        flw_append(out, room, ", %s freed and waiting for other streams (record_stream)",
                   flw_format_size(sheet->pending_bytes, size));
    }
    if (frame != NULL) {
        flw_append(out, room, " of %s that %s reserved",
                   flw_format_size(frame->reserved_bytes, size), name_recorded(sheet));
        flw_append(out, room, "; %s free in %s hole%s", flw_format_size(frame->hole_bytes, size),
                   flw_format_count(frame->hole_count, count), flw_plural(frame->hole_count));
        flw_append(out, room, ", the largest of %s",
                   flw_format_size(frame->largest_hole_bytes, size));
    }
}

static void write_oom(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    char asked[FLW_FIGURE_BYTES], live[FLW_FIGURE_BYTES], event[FLW_FIGURE_BYTES];
    flw_append(out, room, "out of memory at event %s: %s requested %s with %s live",
               flw_format_count(oom->event, event),
               oom->owner[0] != '\0' ? oom->owner : "unknown code",
               flw_format_size(oom->asked_bytes, asked), flw_format_size(oom->live_bytes, live));
    add_owners(sheet, FLW_SHEET_AT_OOM, out, room);
}

static void write_peak(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *recorded = find(sheet, flw_policy_recorded.name);
    const struct flw_sheet_columns *columns = &sheet->columns;
    char size[FLW_FIGURE_BYTES];
    flw_append(out, room, "peak live memory %s",
               flw_format_size(sheet->program->max_live_bytes, size));
    if (columns->time_ns != NULL) {
        uint64_t time_ns = columns->time_ns[flw_sheet_column(columns, sheet->peak_op)];
        flw_append(out, room, " after %s", flw_format_time((double)time_ns, size));
    } else if (sheet->op_count != 0) {
        flw_append(out, room, ", %.0f %% into the recording",
                   100.0 * (double)sheet->peak_op / (double)sheet->op_count);
    }
    if (recorded != NULL) {
        flw_append(out, room, "; %s reserved %s", name_recorded(sheet),
                   flw_format_size(recorded->result->statistics.peak_reserved_bytes, size));
    }
    add_owners(sheet, FLW_SHEET_AT_PEAK, out, room);
}

/* ---- verdict ---- */

static void write_failures(const struct flw_sheet *sheet, char *out, size_t room)
{
    char size[FLW_FIGURE_BYTES];
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        if (policy->result->policy->allocates && policy->result->failure_count != 0) {
            flw_append(out, room, "Every policy failed a request; the first that %s failed was %s.",
                       policy->label, flw_format_size(policy->first_failure_bytes, size));
            return;
        }
    }
    flw_append(out, room, "%s",
               sheet->program->max_live_bytes == 0
                   ? "The trace allocates no memory."
                   : "No policy that allocates memory was replayed.");
}

/* "PyTorch reserved 24.0 GiB", with the part that the recording did not use, and expandable segments. */
static void write_reference(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    const struct flw_sheet_policy *expandable = find(sheet, flw_policy_pytorch_expandable.name);
    uint64_t held_bytes = flw_sheet_held(sheet, reference);
    char size[FLW_FIGURE_BYTES];
    if (reference->result->policy->allocates) {
        flw_append(out, room, "%s would reserve %s", reference->label,
                   flw_format_size(held_bytes, size));
    } else {
        const char *name = name_recorded(sheet);
        flw_append(out, room, "%c%s reserved %s", name[0] == 't' ? 'T' : name[0], name + 1,
                   flw_format_size(held_bytes, size));
    }
    if (held_bytes != reference->result->statistics.peak_reserved_bytes) {
        flw_append(out, room, " (without %s from before the recording, which it did not use)",
                   flw_format_size(sheet->unused_bytes, size));
    }
    if (expandable != NULL && expandable != flw_verdict_best(sheet) &&
        is_of_pytorch(sheet, reference)) {
        flw_append(out, room, " (%s with expandable segments)",
                   flw_format_size(flw_sheet_held(sheet, expandable), size));
    }
}

static void write_comparison(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    const struct flw_sheet_policy *best = flw_verdict_best(sheet);
    const struct flw_sheet_policy *driver = find(sheet, flw_policy_driver.name);
    char size[FLW_FIGURE_BYTES], less[FLW_FIGURE_BYTES];
    if (best == NULL || reference == NULL) {
        write_failures(sheet, out, room);
        return;
    }
    uint64_t held_bytes = flw_sheet_held(sheet, reference);
    uint64_t least_bytes = best->result->statistics.peak_reserved_bytes;
    write_reference(sheet, out, room);
    if (best != reference && least_bytes < held_bytes) {
        flw_append(out, room, "; %s would reserve %s, %s (%.1f %%) less.", best->label,
                   flw_format_size(least_bytes, size),
                   flw_format_size(held_bytes - least_bytes, less),
                   100.0 * (double)(held_bytes - least_bytes) / (double)held_bytes);
    } else if (driver != NULL && driver->result->failure_count == 0 &&
               flw_sheet_held(sheet, driver) < held_bytes) {
        flw_append(out, room,
                   "; only the driver alone would reserve less: %s, waiting at each free.",
                   flw_format_size(flw_sheet_held(sheet, driver), size));
    } else {
        flw_append(out, room, "; no other policy would reserve less.");
    }
}

void flw_verdict_write(struct flw_sheet *sheet)
{
    char *headline = sheet->headline, *verdict = sheet->verdict;
    headline[0] = verdict[0] = '\0';
    if (sheet->is_state) {
        write_state(sheet, headline, sizeof sheet->headline);
        snprintf(verdict, sizeof sheet->verdict, "%.*s", (int)sizeof sheet->verdict - 1, headline);
        return;
    }
    if (sheet->oom.count != 0) {
        write_oom(sheet, headline, sizeof sheet->headline);
    } else {
        write_peak(sheet, headline, sizeof sheet->headline);
    }
    write_comparison(sheet, verdict, sizeof sheet->verdict);
}
