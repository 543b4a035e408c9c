/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "common/tabular.h"
#include "common/terminal.h"
#include "trace/io/jsonwriter.h"

void flw_bench_report_add(struct flw_bench_report *report, const char *key, double value)
{
    if (report->value_count == FLW_BENCH_VALUES) {
        report->failure_count++;
        return;
    }
    struct flw_bench_value *added = &report->values[report->value_count++];
    snprintf(added->key, sizeof added->key, "%s", key);
    added->value = value;
}

static void print_json(const struct flw_bench_report *report,
                       const struct flw_bench_options *options, const struct flw_bench_bed *bed,
                       const char *cpu)
{
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "bench", options->shape);
    flw_json_text(out, "policy", options->policy->name);
    flw_json_text(out, "device", bed->device_name);
    flw_json_bool(out, "simulated", bed->is_simulated);
    flw_json_text(out, "host_cpu", cpu);
    flw_json_number(out, "host_cpus", flw_machine_cpu_count());
    flw_json_text(out, "compiler", flw_machine_compiler());
    if (report->print_case == NULL) {
        flw_json_text(out, "size", options->size_name);
        FLW_JSON_NUMBERS(out, {"count", options->count}, {"warm", options->warm_count},
                         {"live", options->live_count}, {"streams", options->stream_count},
                         {"threads", options->thread_count}, {"seed", options->seed});
        flw_json_bool(out, "sized", options->is_sized);
    }
    flw_json_number(out, "failures", report->failure_count);
    flw_json_begin(out, "results", '{');
    for (size_t i = 0; i < report->value_count; i++) {
        flw_json_general(out, report->values[i].key, 10, report->values[i].value);
    }
    flw_json_end(out, '}');
    if (report->rows != NULL) {
        flw_json_number(out, "lag_pairs", options->lag_pairs);
        flw_json_text(out, "note", report->note);
        flw_json_begin(out, report->print_case != NULL ? "cases" : "rows", '[');
        for (size_t i = 0; i < report->row_count; i++) {
            const struct flw_bench_row *row = &report->rows[i];
            flw_json_begin(out, NULL, '{');
            if (report->print_case != NULL) {
                report->print_case(row, out);
            }
            for (size_t j = 0; j < report->column_count; j++) {
                if (isfinite(row->values[j]) || !report->columns[j].is_optional) {
                    flw_json_general(out, report->columns[j].key, 15, row->values[j]);
                }
            }
            flw_json_end(out, '}');
        }
        flw_json_end(out, ']');
    }
    puts("}");
}

static void print_table(const struct flw_bench_report *report)
{
    size_t first = report->print_case != NULL; /* a case has a name and a note */
    struct flw_table table = {.column_count = report->column_count + 2 * first, .head_count = 1};
    FILE *out = flw_terminal_open(false);
    fprintf(out, "%s\n", report->note);
    flw_table_cell *cells = flw_table_add(&table, NULL);
    for (size_t j = 0; j < report->column_count; j++) {
        strcpy(cells[first + j], report->columns[j].head);
    }
    for (size_t i = 0; i < report->row_count; i++) {
        const struct flw_bench_row *row = &report->rows[i];
        cells = flw_table_add(&table, NULL);
        for (size_t j = 0; j < report->column_count; j++) {
            double value = row->values[j] / report->columns[j].unit;
            snprintf(cells[first + j], sizeof *cells,
                     !isfinite(value)      ? "-"
                     : fabs(value) >= 1000 ? "%.0f"
                                           : "%.4g",
                     value);
        }
        if (first != 0) {
            snprintf(cells[0], sizeof *cells, "%s", row->name);
            snprintf(cells[first + report->column_count], sizeof *cells, "%s%.200s",
                     row->is_failed ? "FAILED: " : "", row->note);
        }
    }
    flw_table_print(&table, flw_terminal_columns(), out);
    flw_table_finish(&table);
    flw_terminal_close(out);
}

void flw_bench_report_print(const struct flw_bench_report *report,
                            const struct flw_bench_options *options,
                            const struct flw_bench_bed *bed)
{
    char cpu[128];
    flw_machine_cpu_name(cpu, sizeof cpu);
    if (options->is_json) {
        print_json(report, options, bed, cpu);
        return;
    }
    if (report->print_case == NULL) {
        printf("bench %s, policy %s, size %s, count %llu\n", options->shape, options->policy->name,
               options->size_name, (unsigned long long)options->count);
    }
    printf("on %s; host: %s, %zu CPUs, %s\n", bed->device_name, cpu, flw_machine_cpu_count(),
           flw_machine_compiler());
    if (report->rows != NULL) {
        print_table(report);
    }
    for (size_t i = 0; i < report->value_count; i++) {
        double value = report->values[i].value;
        bool is_whole = fabs(value) >= 1e6 || value == floor(value);
        printf(!isfinite(value) ? "  %-28s -\n"
               : is_whole       ? "  %-28s %.0f\n"
                                : "  %-28s %.2f\n",
               report->values[i].key, value);
    }
    if (report->failure_count != 0) {
        printf("  %-28s %llu\n", "FAILED CALLS", (unsigned long long)report->failure_count);
    }
}
