/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of plugin.h's tests: a world of two devices, captured stderr, helpers for
 * the calls. Pools belong to the process, so a program has one world. */
#ifndef FLW_TESTS_UNIT_TEST_PLUGIN_H
#define FLW_TESTS_UNIT_TEST_PLUGIN_H

#include "support/test.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fallow/plugin.h"
#include "support/sim.h"

#define MIB ((size_t)1 << 20)

static struct flw_sim sim;
static CUcontext home;         /* of device 0, current */
static CUstream stream, other; /* of device 0 */

/* ---- output on stderr */

static int real_stderr = -1, held_stderr = -1;

static inline void hold_stderr(void)
{
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    held_stderr = memfd_create("stderr", 0);
    assert_true(real_stderr >= 0 && held_stderr >= 0);
    assert_int_equal(dup2(held_stderr, STDERR_FILENO), STDERR_FILENO);
}

/* Return the output since hold_stderr. */
static inline const char *release_stderr(void)
{
    static char text[8192];
    assert_int_equal(dup2(real_stderr, STDERR_FILENO), STDERR_FILENO);
    ssize_t length = pread(held_stderr, text, sizeof text - 1, 0);
    assert_true(length >= 0);
    text[length] = '\0';
    close(real_stderr);
    close(held_stderr);
    return text;
}

static inline void assert_one_line_with(const char *text, const char *part)
{
    const char *end = strchr(text, '\n');
    if (strncmp(text, "fallow: ", 8) != 0 || end == NULL || end[1] != '\0' ||
        strstr(text, part) == NULL) {
        fail_msg("not one line of fallow's with '%s': '%s'", part, text);
    }
}

/* ---- short ways */

static inline void use(void *ptr, size_t bytes, CUstream on)
{
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, bytes, 1, 0};
    assert_int_equal(sim.touch(on, &range, 1), 0);
}

static inline void *take(size_t bytes, CUstream on)
{
    void *ptr = fallow_torch_alloc((ssize_t)bytes, 0, on);
    assert_non_null(ptr);
    use(ptr, bytes, on);
    return ptr;
}

static inline void give(void *ptr, size_t bytes, CUstream on)
{
    fallow_torch_free(ptr, (ssize_t)bytes, 0, on);
}

static inline fallow_pool *pool_of(int device, fallow_plugin_order order)
{
    fallow_pool *pool = NULL;
    assert_ok(fallow_plugin_pool(device, order, 0, &pool));
    return pool;
}

static inline fallow_stats stats_of(int device, fallow_plugin_order order)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_ok(fallow_pool_get_stats(pool_of(device, order), &stats));
    return stats;
}

static inline fallow_block block_of(void *ptr)
{
    fallow_block block;
    fallow_block_init(&block);
    assert_ok(fallow_block_info(pool_of(0, FALLOW_PLUGIN_STREAM), ptr, &block));
    return block;
}

static inline void begin_capture(CUstream on)
{
    assert_ok(sim.cu.cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static inline void end_capture(CUstream on)
{
    CUgraph graph = NULL;
    assert_ok(sim.cu.cuStreamEndCapture(on, &graph));
    assert_non_null(graph);
    assert_ok(sim.cu.cuGraphDestroy(graph));
}

static inline int begin_world(void **state)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.device_count = 2;
    world.device_bytes = (uint64_t)1 << 30;
    if (!flw_sim_open(&sim)) {
        return -1;
    }
    home = flw_sim_begin(&sim, &world);
    return sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != 0 ||
                   sim.cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) != 0
               ? -1
               : 0;
}

/* For leak checkers, because the library keeps the pools. */
static inline void destroy_pools(void)
{
    for (int device = 0; device < 4; device++) {
        for (int order = 0; order < 2; order++) {
            fallow_pool *pool = NULL;
            (void)!fallow_plugin_pool(device, (fallow_plugin_order)order, 0, &pool);
            fallow_pool_destroy(pool);
        }
    }
}

#endif
