/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <string.h>

#include "trace/trace.h"

#include "figures.h"
#include "report/verdict.h"

#define NAME_WIDTH 24

/* The same list of policies in every sheet, so that a number stands for one. */
static void print_legend(const struct flw_sheet *sheet, FILE *out)
{
    for (size_t i = 0; i < sheet->policy_count; i++) {
        fprintf(out, "%3zu %s\n", i + 1, sheet->policies[i].label);
    }
}

void flw_print_landing(const struct flw_sheet *sheets, size_t count, FILE *out)
{
    if (count == 0) {
        return;
    }
    fputs("reserved over requested at their peaks; ! where a request failed\n", out);
    print_legend(&sheets[0], out);
    fprintf(out, "\n%-*s %7s", NAME_WIDTH, "trace", "MiB");
    for (size_t p = 0; p < sheets[0].policy_count; p++) {
        fprintf(out, " %5zu", p + 1);
    }
    fputc('\n', out);
    for (size_t i = 0; i < count; i++) {
        char peak[FLW_FIGURE_BYTES];
        flw_format_bytes(sheets[i].trace->peak_requested_bytes,
                         (struct flw_unit){"MiB", UINT64_C(1) << 20}, peak);
        fprintf(out, "%-*.*s %7s", NAME_WIDTH, NAME_WIDTH, sheets[i].title, peak);
        for (size_t p = 0; p < sheets[i].policy_count; p++) {
            const struct flw_sheet_policy *policy = &sheets[i].policies[p];
            double ratio = flw_verdict_ratio(policy);
            bool has_failed = policy->result->policy->lends && policy->result->failure_count != 0;
            if (has_failed || ratio <= 0) {
                fprintf(out, " %5s", has_failed ? "!" : "-");
            } else {
                fprintf(out, " %5.3f", ratio);
            }
        }
        fputc('\n', out);
    }
}
