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

static void print_policy(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                         FILE *out)
{
    const struct flw_sheet_columns *columns = &sheet->columns;
    size_t hole = 0;
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
        size_t count = policy->hole_column_count;
        bool has_hole =
            hole < count && flw_sheet_hole_end(sheet, count, hole) <= columns->first_op[i + 1];
        if (has_hole) {
            fprintf(out, ",%" PRIu64 ",%" PRIu64 "\n", policy->hole_largest[hole],
                    policy->hole_count[hole]);
            hole++;
        } else {
            fputs(",,\n", out);
        }
    }
}

void flw_print_csv(const struct flw_sheet *sheet, FILE *out)
{
    fputs("event,t_ns,policy,requested,block,reserved,largest_free,holes\n", out);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        print_policy(sheet, &sheet->policies[i], out);
    }
}
