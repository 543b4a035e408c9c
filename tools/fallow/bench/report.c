/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trace/io/jsonwriter.h"

#include "common/tabular.h"
#include "common/terminal.h"

void flw_bench_report_add(struct flw_bench_report *report, const char *key, double value)
{
    if (report->value_count < FLW_BENCH_VALUES) {
        report->values[report->value_count++] = (struct flw_bench_value){key, value};
    } else {
        report->failure_count++; /* a lost figure is a failure, never silence */
    }
}

static void print_json_rows(const struct flw_bench_report *report, struct flw_json_writer *out)
{
    flw_json_begin(out, "rows", '[');
    for (size_t i = 0; i < report->row_count; i++) {
        const struct flw_bench_row *row = &report->rows[i];
        flw_json_begin(out, NULL, '{');
        FLW_JSON_NUMBERS(out, {"streams", row->stream_count}, {"size_bytes", row->size_bytes},
                         {"beside_bytes", row->beside_bytes});
        for (size_t j = 0; j < FLW_BENCH_COLUMNS; j++) {
            flw_json_general(out, flw_bench_columns[j].key, 10, row->values[j]);
        }
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
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
        print_json_rows(report, out);
    }
    puts("}");
}

/* ---- a sweep's table ---- */

static void format_size(uint64_t bytes, flw_table_cell cell)
{
    static const char *const letters[] = {"", "K", "M", "G", "T"};
    unsigned unit = 0;
    while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(cell, FLW_TABLE_CELL_BYTES, "%llu%s", (unsigned long long)bytes, letters[unit]);
}

static void fill_row(const struct flw_bench_row *row, flw_table_cell *cells)
{
    snprintf(cells[0], FLW_TABLE_CELL_BYTES, "%llu", (unsigned long long)row->stream_count);
    format_size(row->size_bytes, cells[1]);
    format_size(row->beside_bytes, cells[2]);
    for (size_t i = 0; i < FLW_BENCH_COLUMNS; i++) {
        double value = row->values[i] / flw_bench_columns[i].unit;
        snprintf(cells[3 + i], FLW_TABLE_CELL_BYTES,
                 !isfinite(value)      ? "-"
                 : fabs(value) >= 1000 ? "%.0f"
                                       : "%.4g",
                 value);
    }
}

static void print_table(const struct flw_bench_options *options,
                        const struct flw_bench_report *report)
{
    struct flw_table table = {.column_count = 3 + FLW_BENCH_COLUMNS, .head_count = 1};
    FILE *out = flw_terminal_open(false);
    fprintf(out, "a row's pairs are on random streams; CPU time and counts a pair; ");
    if (options->lag_pairs == 0) {
        fprintf(out, "no device work\n");
    } else {
        fprintf(out, "simulated work on each block, its time included, is done %llu pairs later\n",
                (unsigned long long)options->lag_pairs);
    }
    flw_table_cell *cells = flw_table_add(&table, NULL);
    strcpy(cells[0], "streams");
    strcpy(cells[1], "size");
    strcpy(cells[2], "live");
    for (size_t i = 0; i < FLW_BENCH_COLUMNS; i++) {
        strcpy(cells[3 + i], flw_bench_columns[i].head);
    }
    for (size_t i = 0; i < report->row_count; i++) {
        fill_row(&report->rows[i], flw_table_add(&table, NULL));
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
        const struct flw_bench_value *value = &report->values[i];
        if (!isfinite(value->value)) {
            printf("  %-28s -\n", value->key);
        } else if (fabs(value->value) >= 1e6 || value->value == floor(value->value)) {
            printf("  %-28s %.0f\n", value->key, value->value);
        } else {
            printf("  %-28s %.2f\n", value->key, value->value);
        }
    }
    if (report->failure_count != 0) {
        printf("  %-28s %llu\n", "FAILED CALLS", (unsigned long long)report->failure_count);
    }
}
