/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace.h"

#include "common/figures.h"

/* ---- a table over several traces ---- */

#define WIDTH      80
#define NAME_WIDTH 24
#define PEAK_WIDTH 9 /* with the space before it */
#define CELL_WIDTH 6 /* the same */

/* The same list of policies in every sheet, so that a number stands for one. */
static void print_legend(const struct flw_sheet *sheet, FILE *out)
{
    for (size_t i = 0; i < sheet->policy_count; i++) {
        fprintf(out, "%3zu %s\n", i + 1, sheet->policies[i].label);
    }
}

/* Where a line has no room for the trace's name and all policies, the name has a line of its own. */
static bool has_room(const struct flw_sheet *sheets, size_t count)
{
    size_t longest = 0;
    for (size_t i = 0; i < count; i++) {
        longest = flw_max(longest, strlen(sheets[i].title));
    }
    return longest <= NAME_WIDTH &&
           NAME_WIDTH + PEAK_WIDTH + CELL_WIDTH * sheets[0].policy_count <= WIDTH;
}

static void print_cell(const struct flw_sheet_policy *policy, FILE *out)
{
    double ratio = flw_sheet_ratio(policy);
    bool has_failed = policy->result->policy->allocates && policy->result->failure_count != 0;
    if (has_failed || ratio <= 0) {
        fprintf(out, " %5s", has_failed ? "!" : "-");
    } else {
        fprintf(out, " %5.3f", ratio);
    }
}

/* `sheet` NULL: the heading. What does not fit goes on below. */
static void print_row(const struct flw_sheet *sheet, size_t policy_count, size_t indent, FILE *out)
{
    char peak[FLW_FIGURE_BYTES] = "MiB";
    size_t a_line = (WIDTH - indent - PEAK_WIDTH) / CELL_WIDTH;
    if (sheet != NULL) {
        flw_format_bytes(sheet->trace->peak_requested_bytes,
                         (struct flw_unit){"MiB", UINT64_C(1) << 20}, peak);
    }
    fprintf(out, " %*s", PEAK_WIDTH - 1, peak);
    for (size_t p = 0; p < policy_count; p++) {
        if (p != 0 && p % a_line == 0) {
            fprintf(out, "\n%*s", (int)(indent + PEAK_WIDTH), "");
        }
        if (sheet == NULL) {
            fprintf(out, " %5zu", p + 1);
        } else {
            print_cell(&sheet->policies[p], out);
        }
    }
    fputc('\n', out);
}

void flw_print_landing(const struct flw_sheet *sheets, size_t count, FILE *out)
{
    if (count == 0) {
        return;
    }
    size_t policy_count = sheets[0].policy_count;
    size_t indent = has_room(sheets, count) ? NAME_WIDTH : 0;
    fputs("reserved over requested at their peaks; ! where a request failed\n", out);
    print_legend(&sheets[0], out);
    fprintf(out, "\n%-*s", (int)indent, indent == 0 ? "" : "trace");
    print_row(NULL, policy_count, indent, out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, indent == 0 ? "%.*s\n" : "%-*s", indent == 0 ? WIDTH : NAME_WIDTH,
                sheets[i].title);
        print_row(&sheets[i], policy_count, indent, out);
    }
}

/* ---- the columns of one trace ---- */

/* A comma, and the value where it is known. */
static void print_range(FILE *out, const struct flw_sheet_range *series, size_t column)
{
    if (series == NULL) {
        fputc(',', out);
    } else {
        fprintf(out, ",%" PRIu64, series[column].high);
    }
}

/* Policies' names have commas of their own once they have settings. */
static void print_name(FILE *out, const char *name)
{
    fputc('"', out);
    for (const char *c = name; *c != '\0'; c++) {
        fputs(*c == '"' ? "\"\"" : (char[]){*c, '\0'}, out);
    }
    fputc('"', out);
}

/* Holes are looked at less often than there are rows: each row has the last look before its end, and
 * says which op that was. */
static void print_holes(FILE *out, const struct flw_sheet *sheet,
                        const struct flw_sheet_policy *policy, size_t look_count)
{
    if (look_count == 0) {
        fputs(",,,\n", out);
        return;
    }
    size_t last = look_count - 1;
    fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", policy->holes[last].largest_bytes,
            policy->holes[last].count,
            flw_sheet_hole_end(sheet, policy->hole_column_count, last) - 1);
}

static void print_policy(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                         FILE *out)
{
    const struct flw_sheet_columns *columns = &sheet->columns;
    size_t look_count = 0;
    for (size_t i = 0; policy->has_series && i < columns->count; i++) {
        fprintf(out, "%" PRIu64 ",", columns->first_op[i]);
        if (columns->time_ns != NULL) {
            fprintf(out, "%" PRIu64, columns->time_ns[i]);
        }
        fputc(',', out);
        print_name(out, policy->result->policy->name);
        print_range(out, policy->requested, i);
        print_range(out, policy->block, i);
        print_range(out, policy->reserved, i);
        while (look_count < policy->hole_column_count &&
               flw_sheet_hole_end(sheet, policy->hole_column_count, look_count) <=
                   columns->first_op[i + 1]) {
            look_count++;
        }
        print_holes(out, sheet, policy, look_count);
    }
}

void flw_print_csv(const struct flw_sheet *sheet, FILE *out)
{
    fputs("event,t_ns,policy,requested,block,reserved,largest_free,holes,holes_event\n", out);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        print_policy(sheet, &sheet->policies[i], out);
    }
}
