/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the words of an audit's report, which lists candidates and the limits of the audit, and never claims that a fill
 * is unneeded.
 */
#include "audit/findings.h"

#include <inttypes.h>
#include <string.h>

#include "common/command.h"
#include "common/figures.h"
#include "trace/io/jsonwriter.h"

#define FRAMES_SHOWN 4

/* 1 GB/s is a byte per nanosecond. */
static double time_ns(const struct flw_findings *findings, uint64_t bytes)
{
    return (double)bytes / findings->bandwidth_gbs;
}

static uint64_t total_bytes(const struct flw_findings *findings)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < findings->site_count; i++) {
        bytes += findings->sites[i].site.bytes;
    }
    return bytes;
}

static void print_script(FILE *out, const char *script)
{
    int length;
    for (const char *line; (line = flw_next_line(&script, &length)) != NULL;) {
        fprintf(out, "%54s%.*s\n", "line ", length, line);
    }
}

static void print_frames(FILE *out, struct flw_findings *findings,
                         const struct flw_finding *finding)
{
    uint32_t end = finding->site.frame_count;
    print_script(out, finding->site.script);
    for (uint32_t i = finding->where; i < end && i < finding->where + FRAMES_SHOWN; i++) {
        const struct flw_audit_frame *frame = &finding->site.frames[i];
        uint64_t offset = 0;
        const char *function = flw_findings_function(findings, frame, &offset);
        fprintf(out, "%54s%s+0x%" PRIx64, i == finding->where ? "from " : "by ",
                flw_findings_module(findings, frame), frame->offset);
        if (function != NULL) {
            fprintf(out, "  %.300s+0x%" PRIx64, function, offset);
        }
        fputc('\n', out);
    }
}

static void print_site(FILE *out, struct flw_findings *findings, const struct flw_finding *finding)
{
    const struct flw_audit_site *site = &finding->site;
    fprintf(out, "  %012" PRIx64 " %9" PRIu64 "  %s%10s %10s  %s\n", site->id, site->fill_count,
            site->unread_range_count > 0 ? "<" : " ", FLW_SIZE(site->bytes),
            FLW_TIME(time_ns(findings, site->bytes)), site->call);
    print_frames(out, findings, finding);
    if (site->unread_value_count > 0) {
        fprintf(out, "%49sthe value of %" PRIu64 " could not be read: it may not be zero\n", "",
                site->unread_value_count);
    }
}

static void print_table(FILE *out, struct flw_findings *findings)
{
    bool has_bound = false;
    fprintf(out, "\n  %-12s %9s  %11s %10s  call\n", "site", "fills", "bytes", "about");
    for (size_t i = 0; i < findings->site_count; i++) {
        print_site(out, findings, &findings->sites[i]);
        has_bound |= findings->sites[i].site.unread_range_count > 0;
    }
    if (has_bound) {
        fputs("  <  at most: the size of a fill could not be read, so the rest of its block is "
              "counted\n",
              out);
    }
    fputs("\nA candidate is a zero-fill of memory that nothing visible had touched since its "
          "allocation. The program may need the zeros: fallow audit --trial SITE -- COMMAND writes "
          "other bytes there.\n",
          out);
}

/* The text is always printed, a count only above 0. */
static void print_blind_spots(FILE *out, const struct flw_findings *findings)
{
    const struct flw_audit_counts *counts = &findings->counts;
    const struct {
        uint64_t count;
        const char *sentence;
    } lines[] = {
        {counts->reused,
         "fills of blocks that something had touched since their allocation: no candidates"},
        {counts->nonzero, "fills with other values than zero: no candidates"},
        {counts->captured, "memsets during a stream capture: not examined"},
        {counts->foreign,
         "fills of memory that is not tracked (mapped, managed, of a module): not examined"},
        {counts->unread_launches,
         "launches with unreadable arguments: every block counted as touched"},
        {counts->graph_launches, "graph launches: every block counted as touched"},
        {counts->hidden_work, "other calls that may touch any block, and ended contexts: every "
                              "block counted as touched"},
        {counts->unfollowed_blocks, "blocks not tracked: out of host memory"},
        {counts->lost_sites,
         "candidates at further sites, for which the table has no room: not listed"},
        {findings->unreadable_count, "processes without complete findings"}};
    fputs(
        "\nNot visible: accesses by a graph, by a kernel that reads addresses from device memory, by "
        "another process or by a call past the hooks. Blocks that a framework's cache cuts from one "
        "allocation count as one block.\n",
        out);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i].count > 0) {
            fprintf(out, "  %12" PRIu64 "  %s\n", lines[i].count, lines[i].sentence);
        }
    }
}

static void print_end(FILE *out, const struct flw_findings *findings)
{
    if (findings->signal != 0) {
        fprintf(out, "a signal ended it: %d (%s).\n", findings->signal,
                strsignal(findings->signal));
    } else {
        fprintf(out, "its exit status was %d.\n", findings->exit_code);
    }
}

static void print_trial(FILE *out, const struct flw_findings *findings)
{
    const struct flw_audit_counts *counts = &findings->counts;
    fprintf(out, "trial of %012" PRIx64 ": %" PRIu64 " fill%s given 0x%02x instead of zeros; ",
            findings->trial_id, counts->poisoned, counts->poisoned == 1 ? " was" : "s were",
            findings->poison);
    print_end(out, findings);
    if (counts->unpoisoned > 0) {
        fprintf(out, "  %" PRIu64 " of its fills were not changed: their size could not be read\n",
                counts->unpoisoned);
    }
    fputs("If the results are right, this run did not need those zeros. That proves nothing for "
          "another run.\n",
          out);
}

void flw_findings_print(FILE *out, struct flw_findings *findings)
{
    uint64_t total = total_bytes(findings);
    fprintf(out,
            "fallow audit: %zu candidate site%s, %" PRIu64 " of %" PRIu64 " fills, %s: about %s of "
            "writing at %g GB/s (a stated bandwidth, not a measured one)\n",
            findings->site_count, findings->site_count == 1 ? "" : "s", findings->counts.candidates,
            findings->counts.fills, FLW_SIZE(total), FLW_TIME(time_ns(findings, total)),
            findings->bandwidth_gbs);
    if (findings->signal != 0) {
        fputs("Findings up to the end of the command: ", out);
        print_end(out, findings);
    }
    if (findings->trial_id != 0) {
        print_trial(out, findings);
    }
    if (findings->site_count > 0) {
        print_table(out, findings);
    } else {
        fputs(
            findings->counts.blocks == 0
                ? "The program made no allocation that an audit tracks.\n"
                : "There is no candidate: no zero-fill of memory that nothing had touched since its "
                  "allocation.\n",
            out);
    }
    print_blind_spots(out, findings);
}

/* ---- JSON */

static void print_json_frame(struct flw_json_writer *out, struct flw_findings *findings,
                             const struct flw_audit_frame *frame)
{
    uint64_t offset = 0;
    const char *function = flw_findings_function(findings, frame, &offset);
    bool is_known = frame->module < findings->modules.count;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "module", is_known ? findings->modules.list[frame->module].path : NULL);
    flw_json_number(out, "offset", frame->offset);
    flw_json_text(out, "function", function);
    if (function != NULL) {
        flw_json_number(out, "function_offset", offset);
    }
    flw_json_end(out, '}');
}

/* Print the number of a site as in tables and for --trial. */
static void print_json_id(struct flw_json_writer *out, const char *key, uint64_t id)
{
    char text[17];
    snprintf(text, sizeof text, "%012" PRIx64, id);
    flw_json_text(out, key, text);
}

static void print_json_site(struct flw_json_writer *out, struct flw_findings *findings,
                            const struct flw_finding *finding)
{
    const struct flw_audit_site *site = &finding->site;
    const char *script = site->script;
    int length;
    flw_json_begin(out, NULL, '{');
    print_json_id(out, "site", site->id);
    flw_json_text(out, "call", site->call);
    FLW_JSON_NUMBERS(out, {"fill_count", site->fill_count}, {"bytes", site->bytes});
    flw_json_fixed(out, "estimated_ns", 1, time_ns(findings, site->bytes));
    FLW_JSON_NUMBERS(out, {"unread_value_count", site->unread_value_count},
                     {"unread_range_count", site->unread_range_count},
                     {"poisoned_count", site->poisoned_count}, {"where", finding->where});
    flw_json_begin(out, "frames", '[');
    for (uint32_t i = 0; i < site->frame_count; i++) {
        print_json_frame(out, findings, &site->frames[i]);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "script", '[');
    for (const char *line; (line = flw_next_line(&script, &length)) != NULL;) {
        flw_json_bytes(out, NULL, line, (size_t)length);
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

void flw_findings_print_json(FILE *file, struct flw_findings *findings)
{
    struct flw_json_writer writer = {.file = file}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_bool(out, "candidates_only", true);
    flw_json_text(out, "meaning",
                  "zero-fills over memory that nothing in view had touched since it was allocated; "
                  "not known to be unneeded");
    flw_json_general(out, "bandwidth_gbs", 6, findings->bandwidth_gbs);
    FLW_JSON_NUMBERS(out, {"exit_code", (uint64_t)findings->exit_code},
                     {"signal", (uint64_t)findings->signal},
                     {"process_count", findings->process_count});
    if (findings->trial_id != 0) {
        print_json_id(out, "trial", findings->trial_id);
        flw_json_number(out, "poison", findings->poison);
    }
    flw_json_number(out, "bytes", total_bytes(findings));
    flw_json_fixed(out, "estimated_ns", 1, time_ns(findings, total_bytes(findings)));
    flw_json_begin(out, "counts", '{');
#define PRINT(name, sentence) flw_json_number(out, #name, findings->counts.name);
    FLW_AUDIT_COUNT_LIST(PRINT)
#undef PRINT
    flw_json_end(out, '}');
    flw_json_begin(out, "sites", '[');
    for (size_t i = 0; i < findings->site_count; i++) {
        print_json_site(out, findings, &findings->sites[i]);
    }
    flw_json_end(out, ']');
    fputs("}\n", file);
}
