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

/* "PyTorch held", "pytorch holds" */
static void name_reference(const struct flw_sheet *sheet, const struct flw_sheet_policy *reference,
                           char *out, size_t room)
{
    if (reference->result->policy->allocates) {
        snprintf(out, room, "%s holds", reference->label);
    } else {
        snprintf(out, room, "%s held",
                 is_of_pytorch(sheet, reference) ? "PyTorch" : "the recorded allocator");
    }
}

static void say_failures(const struct flw_sheet *sheet, char *out, size_t room)
{
    char bytes[FLW_FIGURE_BYTES];
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        if (policy->result->policy->allocates && policy->result->failure_count != 0) {
            flw_format_count(policy->first_failure_bytes, bytes);
            snprintf(out, room,
                     "every policy failed a request; the first that %s could not serve was of %s "
                     "bytes",
                     policy->label, bytes);
            return;
        }
    }
    snprintf(out, room,
             sheet->program->max_live_bytes == 0 ? "the trace asks for no memory"
                                                 : "no policy ran that allocates memory");
}

/* Describe the heap of a sheet without a history. */
static void say_state(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *recorded = flw_sheet_find(sheet, flw_policy_recorded.name);
    const struct flw_sheet_frame *frame =
        recorded == NULL ? NULL : flw_sheet_frame(recorded, "end");
    struct flw_unit unit = flw_unit_choose(sheet->trace->peak_requested_bytes);
    char name[2 * FLW_SHEET_NAME_BYTES], held[FLW_FIGURE_BYTES], used[FLW_FIGURE_BYTES];
    char hole[FLW_FIGURE_BYTES], largest[FLW_FIGURE_BYTES], count[FLW_FIGURE_BYTES];
    char pending[2 * FLW_SHEET_NAME_BYTES] = "";
    flw_format_bytes(sheet->trace->peak_requested_bytes - sheet->pending_bytes, unit, used);
    if (sheet->pending_count != 0) {
        flw_format_bytes(sheet->pending_bytes, unit, hole);
        snprintf(pending, sizeof pending, " %s freed that wait for other streams (record_stream),",
                 hole);
    }
    if (frame == NULL) {
        flw_format_count(sheet->trace->initial_count, count);
        snprintf(out, room, "%s %s in use in %s block%s", used, unit.name, count,
                 flw_plural(sheet->trace->initial_count));
        return;
    }
    name_reference(sheet, recorded, name, sizeof name);
    flw_format_bytes(frame->reserved_bytes, unit, held);
    flw_format_bytes(frame->hole_bytes, unit, hole);
    flw_format_bytes(frame->largest_hole_bytes, unit, largest);
    flw_format_count(frame->hole_count, count);
    snprintf(out, room, "%s %s %s: %s in use,%s %s free in %s hole%s, the largest of %s", name,
             held, unit.name, used, pending, hole, count, flw_plural(frame->hole_count), largest);
}

void flw_verdict_write(const struct flw_sheet *sheet, char *out, size_t room)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    const struct flw_sheet_policy *best = flw_verdict_best(sheet);
    struct flw_unit unit = flw_unit_choose(sheet->trace->peak_requested_bytes);
    char name[3 * FLW_SHEET_NAME_BYTES];
    char held[FLW_FIGURE_BYTES];
    char least[FLW_FIGURE_BYTES];
    char difference[FLW_FIGURE_BYTES];
    if (sheet->is_state) {
        say_state(sheet, out, room);
        return;
    }
    if (best == NULL || reference == NULL) {
        say_failures(sheet, out, room);
        return;
    }
    uint64_t held_bytes = flw_sheet_held(sheet, reference);
    uint64_t least_bytes = best->result->statistics.peak_reserved_bytes;
    name_reference(sheet, reference, name, sizeof name);
    flw_format_bytes(held_bytes, unit, held);
    if (held_bytes != reference->result->statistics.peak_reserved_bytes) {
        char unused[FLW_FIGURE_BYTES];
        size_t length = strlen(name);
        flw_format_bytes(sheet->unused_bytes, unit, unused);
        snprintf(name + length, sizeof name - length,
                 " (without %s %s from before the recording, which it did not use)", unused,
                 unit.name);
    }
    char lead[sizeof name + 2 * FLW_SHEET_NAME_BYTES];
    int length = snprintf(lead, sizeof lead, "%s %s %s", name, held, unit.name);
    const struct flw_sheet_policy *expandable = find(sheet, flw_policy_pytorch_expandable.name);
    if (expandable != NULL && expandable != best && is_of_pytorch(sheet, reference)) {
        flw_format_bytes(flw_sheet_held(sheet, expandable), unit, held);
        snprintf(lead + length, sizeof lead - (size_t)length, " (%s with expandable segments)",
                 held);
    }
    flw_format_bytes(least_bytes, unit, least);
    if (best == reference || least_bytes >= held_bytes) {
        const struct flw_sheet_policy *driver = find(sheet, flw_policy_driver.name);
        length = snprintf(out, room, "%s, and no other policy holds less", lead);
        if (driver != NULL && driver->result->failure_count == 0 && length > 0 &&
            (size_t)length < room && flw_sheet_held(sheet, driver) < held_bytes) {
            flw_format_bytes(flw_sheet_held(sheet, driver), unit, least);
            snprintf(out + length, room - (size_t)length,
                     " but the driver alone, which holds %s and waits at each free", least);
        }
        return;
    }
    flw_format_bytes(held_bytes - least_bytes, unit, difference);
    length = snprintf(out, room, "%s; %s holds %s, which is %s %s (%.1f %%) less", lead,
                      best->label, least, difference, unit.name,
                      100.0 * (double)(held_bytes - least_bytes) / (double)held_bytes);
    if (length > 0 && (size_t)length < room && best->result->has_times) {
        snprintf(out + length, room - (size_t)length, ", at %.0f ns an operation",
                 best->result->all_times.p50_ns);
    }
}
