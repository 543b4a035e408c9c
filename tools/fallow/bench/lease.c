/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape `lease`: a lease of twelve regions, one of them persistent, begun and ended on one stream as in a
 * step, with one layout or with several in turn as in the layers of a model.
 */
#include "bench/bench.h"

#include <stdio.h>

#include "base/bits.h"

#include "fallow/arena.h"

#define REGIONS      12
#define LAYOUTS_MOST 8

/* What the loop's `pool` is here. */
struct lease_bed {
    fallow_arena *arena;
    fallow_layout *layouts[LAYOUTS_MOST];
    uint64_t count;
};

/* A decode step's: lengths, tables and scratch of one layer after the other. */
static fallow_status make_layout(uint64_t number, fallow_layout **out_layout)
{
    static const char *const names[REGIONS] = {"cu_seqlens", "seqlens", "page_table", "metadata",
                                               "q",          "scores",  "lse",        "accumulator",
                                               "output",     "gate_up", "activation", "counter"};
    fallow_region regions[REGIONS];
    for (uint32_t i = 0; i < REGIONS; i++) {
        regions[i] = (fallow_region){.name = names[i],
                                     .size_bytes = (size_t)4096 << (i + number) % 7,
                                     .first_phase = i / 2,
                                     .last_phase = i / 2 + 1};
    }
    regions[REGIONS - 1].size_bytes = 4096;
    regions[REGIONS - 1].flags = FALLOW_REGION_PERSISTENT;
    regions[REGIONS - 1].init = FALLOW_INIT_COUNTER;
    return fallow_layout_create(regions, REGIONS, out_layout);
}

static uint64_t run_leases(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct lease_bed *bed = loop->pool;
    uint64_t failures = 0, at = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        fallow_lease *lease;
        failures +=
            fallow_lease_begin(bed->arena, bed->layouts[at], loop->stream, &lease) != FALLOW_OK;
        failures += fallow_lease_end(lease, loop->stream) != FALLOW_OK;
        at = at + 1 == bed->count ? 0 : at + 1;
    }
    return failures;
}

bool flw_bench_lease(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                     struct flw_bench_report *report, char *message)
{
    struct lease_bed lease_bed = {.count = flw_max(1, flw_min(options->live_count, LAYOUTS_MOST))};
    fallow_stats before, after;
    fallow_stats_init(&before);
    fallow_stats_init(&after);
    fallow_status status = FALLOW_OK;
    for (uint64_t i = 0; status == FALLOW_OK && i < lease_bed.count; i++) {
        status = make_layout(i, &lease_bed.layouts[i]);
    }
    if (status == FALLOW_OK) {
        status = fallow_arena_create(bed->pool, NULL, &lease_bed.arena);
    }
    if (status == FALLOW_OK) {
        struct flw_bench_loop loop = {
            .policy = options->policy, .pool = &lease_bed, .stream = bed->streams[0]};
        report->failure_count +=
            run_leases(&loop, (struct flw_bench_range){0, options->warm_count + 1});
        report->failure_count += fallow_pool_get_stats(bed->pool, &before) != FALLOW_OK;
        flw_bench_time(&loop, run_leases, options->count, report,
                       (struct flw_bench_keys){"ns_per_op", "ns_per_op_min"});
        report->failure_count += fallow_pool_get_stats(bed->pool, &after) != FALLOW_OK;
        flw_bench_report_add(report, "lease_driver_calls",
                             (double)(after.driver_call_count - before.driver_call_count));
        flw_bench_report_add(report, "lease_pool_calls",
                             (double)(after.alloc_count + after.free_count - before.alloc_count -
                                      before.free_count));
    } else {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "no arena: %s", fallow_status_message(status));
    }
    fallow_arena_destroy(lease_bed.arena);
    for (uint64_t i = 0; i < lease_bed.count; i++) {
        fallow_layout_destroy(lease_bed.layouts[i]);
    }
    return status == FALLOW_OK;
}
