/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <inttypes.h>

#include "trace/trace.h"

/* A comma, and the value where it is known. */
static void print_cell(FILE *out, const struct flw_sheet_range *series, size_t column)
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
        print_cell(out, policy->requested, i);
        print_cell(out, policy->block, i);
        print_cell(out, policy->reserved, i);
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
