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
    flw_json_bool(out, "simulated", bed->device.is_simulated);
    flw_json_text(out, "host_cpu", cpu);
    flw_json_number(out, "host_cpus", flw_machine_cpu_count());
    flw_json_text(out, "compiler", flw_machine_compiler());
    flw_json_text(out, "size", options->size_name);
    FLW_JSON_NUMBERS(out, {"count", options->count}, {"warm", options->warm_count},
                     {"live", options->live_count}, {"streams", options->stream_count},
                     {"threads", options->thread_count}, {"seed", options->seed});
    flw_json_bool(out, "sized", options->is_sized);
    flw_json_number(out, "failures", report->failure_count);
    flw_json_begin(out, "results", '{');
    for (size_t i = 0; i < report->value_count; i++) {
        flw_json_general(out, report->values[i].key, 10, report->values[i].value);
    }
    flw_json_end(out, '}');
    if (report->rows != NULL) {
        flw_json_number(out, "lag_pairs", options->lag_pairs);
        flw_json_begin(out, "rows", '[');
        for (size_t i = 0; i < report->row_count; i++) {
            flw_json_begin(out, NULL, '{');
            for (size_t j = 0; j < FLW_BENCH_COLUMNS; j++) {
                flw_json_general(out, flw_bench_columns[j].key, 15, report->rows[i].values[j]);
            }
            flw_json_end(out, '}');
        }
        flw_json_end(out, ']');
    }
    puts("}");
}

static void print_table(const struct flw_bench_options *options,
                        const struct flw_bench_report *report)
{
    struct flw_table table = {.column_count = FLW_BENCH_COLUMNS, .head_count = 1};
    FILE *out = flw_terminal_open(false);
    fprintf(out, "a row's pairs are on random streams; CPU time and counts a pair; ");
    if (options->lag_pairs == 0) {
        fprintf(out, "no device work\n");
    } else {
        fprintf(out, "simulated work on each block, its time included, is done %llu pairs later\n",
                (unsigned long long)options->lag_pairs);
    }
    flw_table_cell *cells = flw_table_add(&table, NULL);
    for (size_t j = 0; j < FLW_BENCH_COLUMNS; j++) {
        strcpy(cells[j], flw_bench_columns[j].head);
    }
    for (size_t i = 0; i < report->row_count; i++) {
        cells = flw_table_add(&table, NULL);
        for (size_t j = 0; j < FLW_BENCH_COLUMNS; j++) {
            double value = report->rows[i].values[j] / flw_bench_columns[j].unit;
            snprintf(cells[j], sizeof *cells,
                     !isfinite(value)      ? "-"
                     : fabs(value) >= 1000 ? "%.0f"
                                           : "%.4g",
                     value);
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
    printf("bench %s, policy %s, size %s, count %llu\n", options->shape, options->policy->name,
           options->size_name, (unsigned long long)options->count);
    printf("on %s; host: %s, %zu CPUs, %s\n", bed->device_name, cpu, flw_machine_cpu_count(),
           flw_machine_compiler());
    if (report->rows != NULL) {
        print_table(options, report);
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
