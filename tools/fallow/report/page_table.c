/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page_table.h"

#include <string.h>

#include "report/svg.h"
#include "trace/trace.h"

static void begin_table(FILE *out, const char *const *headings, size_t count)
{
    fputs("<div class=scroll tabindex=0><table><thead><tr>", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<th scope=col>%s</th>", headings[i]);
    }
    fputs("</tr></thead><tbody>\n", out);
}

static void end_table(FILE *out)
{
    fputs("</tbody></table></div>\n", out);
}

static void write_cell(FILE *out, enum flw_svg_unit unit, uint64_t value)
{
    char number[FLW_SVG_NUMBER_BYTES];
    fprintf(out, "<td>%s</td>",
            value == FLW_NOT_APPLICABLE ? "-" : flw_svg_format(number, unit, (double)value));
}

static void write_real_cell(FILE *out, enum flw_svg_unit unit, bool is_known, double value)
{
    char number[FLW_SVG_NUMBER_BYTES];
    fprintf(out, "<td>%s</td>", is_known ? flw_svg_format(number, unit, value) : "-");
}

static double ratio_of(const struct flw_run_result *result)
{
    bool is_known = result->has_run && result->peak_reserved_bytes != FLW_NOT_APPLICABLE &&
                    result->peak_requested_bytes != 0;
    return is_known ? (double)result->peak_reserved_bytes / (double)result->peak_requested_bytes
                    : 0;
}

void flw_page_table_policies(const struct flw_sheet *sheet, FILE *out)
{
    static const char *const headings[] = {
        "policy",   "peak requested", "peak reserved", "ratio",  "fragmentation", "failed",
        "grow ops", "driver calls",   "events",        "steals", "waits",         "p50",
        "p99",      "p99.9"};
    begin_table(out, headings, sizeof headings / sizeof *headings);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        const struct flw_run_result *result = policy->result;
        fputs("<tr><th scope=row>", out);
        flw_svg_escape(out, policy->label);
        fputs("</th>", out);
        if (!result->has_run) {
            fputs("<td colspan=13>", out);
            flw_svg_escape(out, result->message);
            fputs("</td></tr>\n", out);
            continue;
        }
        write_cell(out, FLW_SVG_BYTES, result->peak_requested_bytes);
        write_cell(out, FLW_SVG_BYTES, result->peak_reserved_bytes);
        write_real_cell(out, FLW_SVG_RATIO, ratio_of(result) > 0, ratio_of(result));
        write_real_cell(out, FLW_SVG_RATIO, policy->has_series && policy->frame_count != 0,
                        policy->fragmentation);
        write_cell(out, FLW_SVG_COUNT, result->failure_count);
        write_cell(out, FLW_SVG_COUNT, result->grow_count);
        write_cell(out, FLW_SVG_COUNT, result->driver_call_count);
        write_cell(out, FLW_SVG_COUNT, result->event_count);
        write_cell(out, FLW_SVG_COUNT, result->steal_count);
        write_cell(out, FLW_SVG_COUNT, result->wait_count);
        write_real_cell(out, FLW_SVG_NS, result->has_times, result->p50_ns);
        write_real_cell(out, FLW_SVG_NS, result->has_times, result->p99_ns);
        write_real_cell(out, FLW_SVG_NS, result->has_times, result->p999_ns);
        fputs("</tr>\n", out);
    }
    end_table(out);
}

void flw_page_table_owners(const struct flw_sheet *sheet, enum flw_sheet_kind kind, FILE *out)
{
    static const char *const headings[] = {"owner", "bytes at the peak", "blocks at the peak"};
    fputs("<details><summary>Numbers</summary>", out);
    begin_table(out, headings, sizeof headings / sizeof *headings);
    for (size_t i = 0; i < sheet->category_count[kind]; i++) {
        const struct flw_sheet_category *category = &sheet->categories[kind][i];
        fputs("<tr><th scope=row>", out);
        flw_svg_escape(out, category->name);
        fputs("</th>", out);
        write_cell(out, FLW_SVG_BYTES, category->at_peak_bytes);
        write_cell(out, FLW_SVG_COUNT, category->at_peak_count);
        fputs("</tr>\n", out);
    }
    end_table(out);
    fputs("</details>", out);
}

void flw_page_table_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            FILE *out)
{
    fputs("<div class=scroll tabindex=0><table><thead><tr><th scope=col>trace</th><th "
          "scope=col>requested</th>",
          out);
    for (size_t p = 0; count > 0 && p < sheets[0].policy_count; p++) {
        fputs("<th scope=col>", out);
        flw_svg_escape(out, sheets[0].policies[p].label);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet *sheet = &sheets[i];
        fputs("<tr><th scope=row>", out);
        if (links != NULL && links[i] != NULL) {
            fputs("<a href=\"", out);
            flw_svg_escape(out, links[i]);
            fputs("\">", out);
        }
        flw_svg_escape(out, sheet->title);
        fputs(links != NULL && links[i] != NULL ? "</a></th>" : "</th>", out);
        write_cell(out, FLW_SVG_BYTES, sheet->trace->peak_requested_bytes);
        for (size_t p = 0; p < sheet->policy_count; p++) {
            double ratio = ratio_of(sheet->policies[p].result);
            write_real_cell(out, FLW_SVG_RATIO, ratio > 0, ratio);
        }
        fputs("</tr>\n", out);
    }
    end_table(out);
}
