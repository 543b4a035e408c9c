/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of arena tests: a world with contents under the rule checker, a pool, and
 * helpers for layouts, leases and their bytes. */
#ifndef FLW_TESTS_UNIT_TEST_ARENA_H
#define FLW_TESTS_UNIT_TEST_ARENA_H

#include "unit/pool/test_api.h"

#include "fallow/arena.h"

#define KIB ((size_t)1 << 10)

static inline void bed_begin_world(struct api *api)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = (uint64_t)1 << 30;
    api_begin(api, &world);
}

static inline void bed_begin_with(struct api *api, size_t limit_bytes)
{
    bed_begin_world(api);
    fallow_pool_config config = api_config(api);
    config.limit_bytes = limit_bytes;
    assert_ok(fallow_pool_create(&config, &api->pool));
}

static inline void bed_begin(struct api *api)
{
    bed_begin_with(api, 0);
}

static inline fallow_arena *make_arena(struct api *api, uint32_t checks)
{
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    fallow_arena_config_init(&config);
    config.name = "decode";
    config.checks = checks;
    config.log = api_log;
    config.log_context = api;
    assert_ok(fallow_arena_create(api->pool, &config, &arena));
    return arena;
}

static inline fallow_layout *make_layout(const fallow_region *regions, size_t count)
{
    fallow_layout *layout = NULL;
    assert_ok(fallow_layout_create(regions, count, &layout));
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
static inline void touch_lease(struct api *api, const fallow_lease *lease,
                               const fallow_layout *layout, CUstream stream)
{
    for (size_t i = 0; i < fallow_layout_region_count(layout); i++) {
        fallow_region region;
        assert_ok(fallow_layout_region(layout, i, &region, NULL));
        api_use(api, fallow_lease_region_at(lease, i), region.size_bytes, stream);
    }
}

static inline fallow_arena_stats arena_stats(fallow_arena *arena)
{
    fallow_arena_stats stats;
    fallow_arena_stats_init(&stats);
    assert_ok(fallow_arena_get_stats(arena, &stats));
    return stats;
}

static inline void fill_bytes(struct api *api, void *to, int byte, size_t bytes, CUstream stream)
{
    assert_ok(api->sim.cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, (unsigned char)byte, bytes,
                                          stream));
}

static inline void read_bytes(struct api *api, void *to, const void *from, size_t bytes,
                              CUstream stream)
{
    assert_ok(api->sim.cu.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, stream));
    assert_ok(api->sim.cu.cuStreamSynchronize(stream));
}

static inline void begin_capturing(struct api *api, CUstream stream, fallow_capture **out)
{
    assert_ok(fallow_capture_begin(api->pool, stream, out));
    api_begin_capturing(api, stream);
}

static inline CUgraphExec end_capturing(struct api *api, CUstream stream, fallow_capture *capture)
{
    CUgraph graph = api_end_capturing(api, stream);
    CUgraphExec executable = NULL;
    assert_ok(fallow_capture_end(capture));
    assert_ok(api->sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    assert_ok(api->sim.cu.cuGraphDestroy(graph));
    return executable;
}

/* Two addresses are in stream order one after the other: nothing to see but the checker's silence. */
static inline void expect_silence(struct api *api)
{
    assert_int_equal(flw_sim_print_violations(&api->sim), 0);
}

#endif
