/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "common/tabular.h"
#include "common/terminal.h"
#include "trace/io/jsonwriter.h"

void flw_bench_add(struct flw_bench *bench, const char *key, double value)
{
    if (bench->value_count == FLW_BENCH_VALUES) {
        bench->failure_count++;
        return;
    }
    snprintf(bench->values[bench->value_count].key, sizeof bench->values->key, "%s", key);
    bench->values[bench->value_count++].value = value;
}

struct flw_bench_row *flw_bench_add_row(struct flw_bench *bench)
{
    bench->rows =
        flw_host_grow(bench->rows, &bench->row_capacity, bench->row_count + 1, sizeof *bench->rows);
    return &bench->rows[bench->row_count++];
}

static void print_rows(const struct flw_bench *bench, struct flw_json_writer *out)
{
    flw_json_number(out, "lag_pairs", bench->options->lag_pairs);
    flw_json_text(out, "note", bench->note);
    flw_json_begin(out, bench->print_case != NULL ? "cases" : "rows", '[');
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct flw_bench_row *row = &bench->rows[i];
        flw_json_begin(out, NULL, '{');
        if (bench->print_case != NULL) {
            bench->print_case(row, out);
        }
        for (size_t j = 0; j < bench->column_count; j++) {
            if (isfinite(row->values[j]) || !bench->columns[j].is_optional) {
                flw_json_general(out, bench->columns[j].key, 15, row->values[j]);
            }
        }
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void print_json(const struct flw_bench *bench, const char *cpu)
{
    const struct flw_bench_options *options = bench->options;
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "bench", options->shape);
    flw_json_text(out, "policy", options->policy->name);
    flw_json_text(out, "device", bench->device_name);
    flw_json_bool(out, "simulated", bench->is_simulated);
    flw_json_text(out, "host_cpu", cpu);
    flw_json_number(out, "host_cpus", flw_machine_cpu_count());
    flw_json_text(out, "compiler", flw_machine_compiler());
    if (bench->print_case == NULL) {
        flw_json_text(out, "size", options->size_name);
        FLW_JSON_NUMBERS(out, {"count", options->count}, {"warm", options->warm_count},
                         {"live", options->live_count}, {"streams", options->stream_count},
                         {"threads", options->thread_count}, {"seed", options->seed});
        flw_json_bool(out, "sized", options->is_sized);
    }
    flw_json_number(out, "failures", bench->failure_count);
    flw_json_begin(out, "results", '{');
    for (size_t i = 0; i < bench->value_count; i++) {
        flw_json_general(out, bench->values[i].key, 10, bench->values[i].value);
    }
    flw_json_end(out, '}');
    if (bench->rows != NULL) {
        print_rows(bench, out);
    }
    puts("}");
}

static void print_table(const struct flw_bench *bench)
{
    size_t first = bench->print_case != NULL; /* a case has a name and a note */
    struct flw_table table = {.column_count = bench->column_count + 2 * first, .head_count = 1};
    FILE *out = flw_terminal_open(false);
    fprintf(out, "%s\n", bench->note);
    flw_table_cell *cells = flw_table_add(&table, NULL);
    for (size_t j = 0; j < bench->column_count; j++) {
        strcpy(cells[first + j], bench->columns[j].head);
    }
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct flw_bench_row *row = &bench->rows[i];
        cells = flw_table_add(&table, NULL);
        for (size_t j = 0; j < bench->column_count; j++) {
            double value = row->values[j] / bench->columns[j].unit;
            snprintf(cells[first + j], sizeof *cells,
                     !isfinite(value)      ? "-"
                     : fabs(value) >= 1000 ? "%.0f"
                                           : "%.4g",
                     value);
        }
        if (first != 0) {
            snprintf(cells[0], sizeof *cells, "%s", row->name);
            snprintf(cells[first + bench->column_count], sizeof *cells, "%s%.200s",
                     row->is_failed ? "FAILED: " : "", row->note);
        }
    }
    flw_table_print(&table, flw_terminal_columns(), out);
    flw_table_finish(&table);
    flw_terminal_close(out);
}

void flw_bench_print(const struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    char cpu[128];
    flw_machine_cpu_name(cpu, sizeof cpu);
    if (options->is_json) {
        print_json(bench, cpu);
        return;
    }
    if (bench->print_case == NULL) {
        printf("bench %s, policy %s, size %s, count %llu\n", options->shape, options->policy->name,
               options->size_name, (unsigned long long)options->count);
    }
    printf("on %s; host: %s, %zu CPUs, %s\n", bench->device_name, cpu, flw_machine_cpu_count(),
           flw_machine_compiler());
    if (bench->rows != NULL) {
        print_table(bench);
    }
    for (size_t i = 0; i < bench->value_count; i++) {
        double value = bench->values[i].value;
        bool is_whole = fabs(value) >= 1e6 || value == floor(value);
        printf(!isfinite(value) ? "  %-28s -\n"
               : is_whole       ? "  %-28s %.0f\n"
                                : "  %-28s %.2f\n",
               bench->values[i].key, value);
    }
    if (bench->failure_count != 0) {
        printf("  %-28s %llu\n", "FAILED CALLS", (unsigned long long)bench->failure_count);
    }
}
