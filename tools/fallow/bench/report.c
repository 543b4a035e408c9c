/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>

#include "trace/jsontext.h"

void flw_bench_report_add(struct flw_bench_report *report, const char *key, double value)
{
    if (report->value_count < FLW_BENCH_VALUES) {
        report->values[report->value_count++] = (struct flw_bench_value){key, value};
    } else {
        report->failure_count++; /* a lost figure is a failure, never silence */
    }
}

static void print_json_text(const char *key, const char *text)
{
    printf("\"%s\":", key);
    flw_json_print_text(stdout, text);
}

static void print_json(const struct flw_bench_report *report,
                       const struct flw_bench_options *options, const struct flw_bench_bed *bed,
                       const char *cpu)
{
    putchar('{');
    print_json_text("bench", options->shape);
    putchar(',');
    print_json_text("policy", options->policy->name);
    putchar(',');
    print_json_text("device", bed->device_name);
    printf(",\"simulated\":%s,", bed->is_sim ? "true" : "false");
    print_json_text("host_cpu", cpu);
    printf(",\"host_cpus\":%zu,", flw_machine_cpu_count());
    print_json_text("compiler", flw_machine_compiler());
    putchar(',');
    print_json_text("size", options->size_name);
    printf(",\"count\":%llu,\"warm\":%llu,\"live\":%llu,\"streams\":%zu,\"threads\":%zu,"
           "\"seed\":%llu,\"sized\":%s,\"failures\":%llu,\"results\":{",
           (unsigned long long)options->count, (unsigned long long)options->warm_count,
           (unsigned long long)options->live_count, options->stream_count, options->thread_count,
           (unsigned long long)options->seed, options->is_sized ? "true" : "false",
           (unsigned long long)report->failure_count);
    for (size_t i = 0; i < report->value_count; i++) {
        const struct flw_bench_value *value = &report->values[i];
        printf("%s\"%s\":", i == 0 ? "" : ",", value->key);
        if (isfinite(value->value)) {
            printf("%.10g", value->value);
        } else {
            printf("null");
        }
    }
    printf("}}\n");
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
