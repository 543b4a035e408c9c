/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fixed scenarios of the mutation suite for arenas.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/sim.h"

#include "fallow/arena.h"

int flw_mutant_arena_scenarios(void);

#define FOUND 3

struct field {
    struct flw_sim sim;
    fallow_pool *pool;
    fallow_arena *arena;
    CUstream stream, other;
    bool is_wrong;
};

static void expect(struct field *field, bool holds, const char *sentence)
{
    if (!holds) {
        fprintf(stderr, "scenario: %s\n", sentence);
        field->is_wrong = true;
    }
}

static void must(bool works)
{
    if (!works) {
        fprintf(stderr, "scenario: the test's own call failed\n");
        abort();
    }
}

static fallow_layout *layout_of(const fallow_region *regions, size_t count)
{
    fallow_layout *layout = NULL;
    must(fallow_layout_create(regions, count, &layout) == FALLOW_OK);
    return layout;
}

/* The lease's regions, written by the device; NULL: refused. */
static fallow_lease *begin(struct field *field, const fallow_layout *layout, CUstream stream)
{
    fallow_lease *lease = NULL;
    if (fallow_lease_begin(field->arena, layout, stream, &lease) != FALLOW_OK) {
        return NULL;
    }
    for (size_t i = 0; i < fallow_layout_region_count(layout); i++) {
        fallow_region region;
        must(fallow_layout_region(layout, i, &region, NULL) == FALLOW_OK);
        flw_sim_range range = {(uint64_t)(uintptr_t)fallow_lease_region_at(lease, i),
                               region.size_bytes, 1, 0};
        must(field->sim.touch(stream, &range, 1) == 0);
    }
    return lease;
}

static void lease_once(struct field *field, const fallow_layout *layout, CUstream stream)
{
    fallow_lease *lease = begin(field, layout, stream);
    expect(field, lease != NULL && fallow_lease_end(lease, stream) == FALLOW_OK,
           "a lease is refused");
}

static void check_places(struct field *field)
{
    const fallow_region regions[] = {{.name = "one", .size_bytes = 4096},
                                     {.name = "two", .size_bytes = 4096}};
    fallow_layout *layout = layout_of(regions, 2);
    fallow_region region;
    size_t one = 0, two = 0;
    must(fallow_layout_region(layout, 0, &region, &one) == FALLOW_OK);
    must(fallow_layout_region(layout, 1, &region, &two) == FALLOW_OK);
    expect(field, one + 4096 <= two || two + 4096 <= one, "regions share bytes");
    fallow_layout_destroy(layout);
}

static void check_binding(struct field *field)
{
    fallow_region region = {.name = "kept", .size_bytes = 512, .flags = FALLOW_REGION_PERSISTENT};
    fallow_layout *small = layout_of(&region, 1);
    region.size_bytes = 70000;
    fallow_layout *large = layout_of(&region, 1);
    lease_once(field, small, field->stream);
    fallow_lease *lease = begin(field, large, field->stream);
    must(lease != NULL);
    void *address = fallow_lease_region_at(lease, 0);
    must(fallow_lease_end(lease, field->stream) == FALLOW_OK);
    lease = begin(field, small, field->stream);
    must(lease != NULL);
    expect(field, fallow_lease_region_at(lease, 0) == address,
           "a layout has the address that a persistent region had before");
    must(fallow_lease_end(lease, field->stream) == FALLOW_OK);
    fallow_layout_destroy(small);
    fallow_layout_destroy(large);
}

static void check_zones(struct field *field)
{
    const fallow_region regions[] = {{.name = "x", .size_bytes = 1000},
                                     {.name = "y", .size_bytes = 1000}};
    fallow_arena_config config;
    fallow_arena_stats stats;
    fallow_lease *lease = NULL;
    fallow_arena *arena = NULL;
    fallow_arena_config_init(&config);
    fallow_arena_stats_init(&stats);
    config.checks = FALLOW_ARENA_CHECK_RED_ZONES;
    fallow_layout *layout = layout_of(regions, 2);
    must(fallow_arena_create(field->pool, &config, &arena) == FALLOW_OK &&
         fallow_lease_begin(arena, layout, field->stream, &lease) == FALLOW_OK);
    CUdeviceptr end = (CUdeviceptr)(uintptr_t)fallow_lease_region(lease, "x") + 1000;
    must(field->sim.cu.cuMemsetD8Async(end, 1, 4, field->stream) == CUDA_SUCCESS &&
         fallow_lease_end(lease, field->stream) == FALLOW_OK &&
         fallow_arena_get_stats(arena, &stats) == FALLOW_OK);
    expect(field, stats.damage_count == 1, "a write behind a region is not found");
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
}

static void check_capture(struct field *field)
{
    fallow_region regions[] = {
        {.name = "x", .size_bytes = 50000},
        {.name = "held", .size_bytes = 512, .flags = FALLOW_REGION_PERSISTENT}};
    fallow_layout *layout = layout_of(regions, 2);
    regions[1].size_bytes = 70000;
    fallow_layout *moved = layout_of(regions + 1, 1), *plain = layout_of(regions, 1);
    fallow_arena *empty = NULL;
    fallow_capture *capture = NULL;
    fallow_lease *lease = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    lease_once(field, layout, field->stream);
    must(fallow_capture_begin(field->pool, field->stream, &capture) == FALLOW_OK &&
         field->sim.cu.cuStreamBeginCapture_v2(field->stream, CU_STREAM_CAPTURE_MODE_RELAXED) ==
             CUDA_SUCCESS);
    must(fallow_arena_create(field->pool, NULL, &empty) == FALLOW_OK);
    fallow_status status = fallow_lease_begin(empty, plain, field->stream, &lease);
    expect(field, status == FALLOW_CAPTURING, "an arena grows inside a capture");
    if (status == FALLOW_OK) {
        must(fallow_lease_end(lease, field->stream) == FALLOW_OK);
    }
    lease_once(field, layout, field->stream);
    must(field->sim.cu.cuStreamEndCapture(field->stream, &graph) == CUDA_SUCCESS &&
         fallow_capture_end(capture) == FALLOW_OK);
    status = fallow_lease_begin(field->arena, moved, field->stream, &lease);
    expect(field, status == FALLOW_BUSY, "an arena moves that a graph holds the addresses of");
    if (status == FALLOW_OK) {
        must(fallow_lease_end(lease, field->stream) == FALLOW_OK);
    }
    must(field->sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        must(fallow_lease_guard(field->arena, field->other) == FALLOW_OK &&
             field->sim.cu.cuGraphLaunch(executable, field->other) == CUDA_SUCCESS);
        lease_once(field, layout, field->stream);
    }
    expect(field, flw_sim_print_violations(&field->sim) == 0, "a lease and a launch race");
    must(field->sim.cu.cuGraphExecDestroy(executable) == CUDA_SUCCESS &&
         field->sim.cu.cuGraphDestroy(graph) == CUDA_SUCCESS &&
         fallow_capture_release(capture) == FALLOW_OK);
    fallow_layout_destroy(layout);
    fallow_layout_destroy(plain);
    fallow_layout_destroy(moved);
    fallow_arena_destroy(empty);
}

int flw_mutant_arena_scenarios(void)
{
    struct field field = {0};
    if (!flw_sim_open(&field.sim)) {
        return 2;
    }
    flw_sim_config config = flw_sim_config_default(5);
    fallow_pool_config pool_config;
    fallow_pool_config_init(&pool_config);
    config.check = 1;
    config.backed = 1;
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = (uint64_t)1 << 30;
    pool_config.driver = "sim";
    (void)flw_sim_begin(&field.sim, &config);
    must(fallow_pool_create(&pool_config, &field.pool) == FALLOW_OK &&
         fallow_arena_create(field.pool, NULL, &field.arena) == FALLOW_OK &&
         field.sim.cu.cuStreamCreate(&field.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
         field.sim.cu.cuStreamCreate(&field.other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    void (*const checks[])(struct field * field) = {check_places, check_binding, check_zones,
                                                    check_capture};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !field.is_wrong; i++) {
        checks[i](&field);
    }
    if (!field.is_wrong) {
        fallow_arena_destroy(field.arena);
        fallow_pool_destroy(field.pool);
        expect(&field, flw_sim_print_violations(&field.sim) == 0, "a rule is broken");
    }
    return field.is_wrong ? FOUND : 0;
}
