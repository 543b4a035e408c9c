/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of arena tests: a world with contents under the rule checker, a pool, and
 * helpers for layouts, leases and their bytes. */
#ifndef FLW_TESTS_UNIT_TEST_ARENA_H
#define FLW_TESTS_UNIT_TEST_ARENA_H

#include "unit/pool/test_api.h"

#include "fallow/arena.h"

#define KIB ((size_t)1 << 10)

/* A persistent region with this name and size, and further fields. */
#define KEPT_REGION(region_name, bytes, ...)                                                     \
    {                                                                                            \
        .name = region_name, .size_bytes = bytes, .flags = FALLOW_REGION_PERSISTENT, __VA_ARGS__ \
    }

/* The world of the running test, and its arenas and layouts, which bed_end destroys. */
static struct api api;
static fallow_arena *bed_arenas[4100];
static fallow_layout *bed_layouts[256];
static size_t bed_arena_count, bed_layout_count;

static inline void bed_begin_world(void)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = (uint64_t)1 << 30;
    bed_arena_count = bed_layout_count = 0;
    api_begin(&api, &world);
}

static inline void bed_begin_with(size_t limit_bytes)
{
    bed_begin_world();
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = limit_bytes;
    assert_ok(fallow_pool_create(&config, &api.pool));
}

static inline void bed_begin(void)
{
    bed_begin_with(0);
}

static inline fallow_arena *make_arena(uint32_t checks)
{
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    fallow_arena_config_init(&config);
    config.name = "decode";
    config.checks = checks;
    config.log = api_log;
    config.log_context = &api;
    assert_ok(fallow_arena_create(api.pool, &config, &arena));
    bed_arenas[bed_arena_count++] = arena;
    return arena;
}

/* Destroy an arena before the end of its test. */
static inline void destroy_arena(fallow_arena *arena)
{
    for (size_t i = bed_arena_count; i-- > 0;) {
        if (bed_arenas[i] == arena) {
            bed_arenas[i] = bed_arenas[--bed_arena_count];
        }
    }
    fallow_arena_destroy(arena);
}

static inline void destroy_layout(fallow_layout *layout)
{
    for (size_t i = bed_layout_count; i-- > 0;) {
        if (bed_layouts[i] == layout) {
            bed_layouts[i] = bed_layouts[--bed_layout_count];
        }
    }
    fallow_layout_destroy(layout);
}

static inline void destroy_all(void)
{
    while (bed_arena_count > 0) {
        fallow_arena_destroy(bed_arenas[--bed_arena_count]);
    }
    while (bed_layout_count > 0) {
        fallow_layout_destroy(bed_layouts[--bed_layout_count]);
    }
}

/* End a test: nothing may be left and no rule may be broken. */
static inline void bed_end(void)
{
    destroy_all();
    api_end(&api);
}

/* End a test that broke rules on purpose. Returns the number of violations. */
static inline uint64_t bed_end_with_violations(void)
{
    destroy_all();
    fallow_pool_destroy(api.pool);
    uint64_t count = flw_sim_read_ledger(&api.sim).violation_count;
    flw_sim_close(&api.sim);
    return count;
}

static inline fallow_layout *make_layout(const fallow_region *regions, size_t count)
{
    fallow_layout *layout = NULL;
    assert_ok(fallow_layout_create(regions, count, &layout));
    bed_layouts[bed_layout_count++] = layout;
    return layout;
}

/* One scratch region "x". */
static inline fallow_layout *make_plain_layout(size_t bytes)
{
    fallow_region region = {.name = "x", .size_bytes = bytes};
    return make_layout(&region, 1);
}

static inline fallow_lease *begin_lease(fallow_arena *arena, const fallow_layout *layout,
                                        CUstream stream)
{
    fallow_lease *lease = NULL;
    assert_ok(fallow_lease_begin(arena, layout, stream, &lease));
    assert_non_null(lease);
    return lease;
}

/* Refused with this status, and a sentence that contains `part`. */
static inline void refuse_lease(fallow_arena *arena, const fallow_layout *layout, CUstream stream,
                                fallow_status status, const char *part)
{
    char text[256];
    fallow_lease *lease = (fallow_lease *)(void *)&text;
    assert_int_equal(fallow_lease_begin(arena, layout, stream, &lease), status);
    assert_null(lease);
    fallow_arena_last_error(arena, text, sizeof text);
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' does not say '%s'", text, part);
    }
}

static inline void end_lease(fallow_lease *lease, CUstream stream)
{
    assert_ok(fallow_lease_end(lease, stream));
}

/* The device writes every region of an open lease. */
static inline void touch_lease(const fallow_lease *lease, const fallow_layout *layout,
                               CUstream stream)
{
    for (size_t i = 0; i < fallow_layout_region_count(layout); i++) {
        fallow_region region;
        assert_ok(fallow_layout_region(layout, i, &region, NULL));
        api_use(&api, fallow_lease_region_at(lease, i), region.size_bytes, stream);
    }
}

/* Begin a lease, write to each of its regions, and end it, on one stream. */
static inline void use_lease(fallow_arena *arena, const fallow_layout *layout, CUstream stream)
{
    fallow_lease *lease = begin_lease(arena, layout, stream);
    touch_lease(lease, layout, stream);
    end_lease(lease, stream);
}

/* Begin and end a lease without work on the device. */
static inline void lease_once(fallow_arena *arena, const fallow_layout *layout, CUstream stream)
{
    end_lease(begin_lease(arena, layout, stream), stream);
}

static inline fallow_arena_stats arena_stats(fallow_arena *arena)
{
    fallow_arena_stats stats;
    fallow_arena_stats_init(&stats);
    assert_ok(fallow_arena_get_stats(arena, &stats));
    return stats;
}

static inline void fill_bytes(void *to, int byte, size_t bytes, CUstream stream)
{
    assert_ok(
        api.sim.cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, (unsigned char)byte, bytes, stream));
}

static inline void read_bytes(void *to, const void *from, size_t bytes, CUstream stream)
{
    assert_ok(api.sim.cu.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, stream));
    assert_ok(api.sim.cu.cuStreamSynchronize(stream));
}

static inline void begin_capturing(CUstream stream, fallow_capture **out)
{
    assert_ok(fallow_capture_begin(api.pool, stream, out));
    api_begin_capturing(&api, stream);
}

static inline CUgraphExec end_capturing(CUstream stream, fallow_capture *capture)
{
    CUgraph graph = api_end_capturing(&api, stream);
    CUgraphExec executable = NULL;
    assert_ok(fallow_capture_end(capture));
    assert_ok(api.sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    assert_ok(api.sim.cu.cuGraphDestroy(graph));
    return executable;
}

static inline void drop_graph(CUgraphExec executable, fallow_capture *capture)
{
    assert_ok(api.sim.cu.cuGraphExecDestroy(executable));
    assert_ok(fallow_capture_release(capture));
}

static inline void launch_guarded(fallow_arena *arena, CUgraphExec executable, CUstream stream)
{
    assert_ok(fallow_lease_guard(arena, stream));
    assert_ok(api.sim.cu.cuGraphLaunch(executable, stream));
}

/* Make `stream` wait for the present work of `other`. */
static inline void wait_for(CUstream stream, CUstream other)
{
    CUevent event;
    assert_ok(api.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(api.sim.cu.cuEventRecord(event, other));
    assert_ok(api.sim.cu.cuStreamWaitEvent(stream, event, 0));
    assert_ok(api.sim.cu.cuEventDestroy_v2(event));
}

/* Two addresses are in stream order one after the other: nothing to see but the checker's silence. */
static inline void expect_silence(void)
{
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
}

#endif
