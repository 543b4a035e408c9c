/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of the tests of public calls: a fresh simulated world, one pool, two
 * streams. */
#ifndef FLW_TESTS_UNIT_TEST_API_H
#define FLW_TESTS_UNIT_TEST_API_H

#include "support/test.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "fallow/fallow.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "support/sim.h"

#define MIB ((size_t)1 << 20)

struct api {
    struct flw_sim sim;
    fallow_pool *pool;
    CUstream stream, other;
    char log[512]; /* the last line */
};

struct api_elsewhere {
    fallow_pool *pool;
    CUstream stream;
    fallow_status status;
};

static inline void api_log(void *context, fallow_log_level level, const char *message)
{
    struct api *api = context;
    (void)level;
    snprintf(api->log, sizeof api->log, "%s", message);
}

/* A held device makes no progress while an allocation polls, only during a wait without a deadline. */
static inline fallow_pool_config api_config(struct api *api)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.log = api_log;
    config.log_context = api;
    config.wait_ms = UINT32_MAX - 1;
    return config;
}

/* A world by `world` (NULL: held and checked), no pool yet. */
static inline void api_begin(struct api *api, const flw_sim_config *world)
{
    flw_sim_config usual = flw_sim_config_default(7);
    usual.schedule = FLW_SIM_HELD;
    usual.check = 1;
    memset(api, 0, sizeof *api);
    assert_true(flw_sim_open(&api->sim));
    flw_sim_begin(&api->sim, world != NULL ? world : &usual);
    assert_int_equal(api->sim.cu.cuStreamCreate(&api->stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(&api->other, CU_STREAM_NON_BLOCKING), 0);
}

/* A pool with these settings, the caller's to destroy. */
static inline fallow_pool *api_create(struct api *api)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config = api_config(api);
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    return pool;
}

static inline void api_begin_with_pool(struct api *api)
{
    api_begin(api, NULL);
    api->pool = api_create(api);
}

/* Allocate in a new thread, which trusts no stream handle; return the block. */
static inline void *api_elsewhere_thread(void *argument)
{
    struct api_elsewhere *call = argument;
    void *ptr = NULL;
    call->status = fallow_alloc(call->pool, 300, call->stream, &ptr);
    if (call->status == FALLOW_OK) {
        call->status = fallow_free(call->pool, ptr, call->stream);
    }
    return NULL;
}

static inline fallow_status api_ask_elsewhere(struct api *api, CUstream stream)
{
    pthread_t thread;
    struct api_elsewhere call = {.pool = api->pool, .stream = stream};
    assert_int_equal(pthread_create(&thread, NULL, api_elsewhere_thread, &call), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return call.status;
}

/* Destroys the pool where there is one; nothing may be left. */
static inline void api_end(struct api *api)
{
    fallow_pool_destroy(api->pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&api->sim);
    assert_int_equal(ledger.given_bytes, 0);
    assert_int_equal(ledger.event_count, 0);
    assert_int_equal(ledger.mapping_count, 0);
    assert_int_equal(ledger.handle_count, 0);
    assert_int_equal(ledger.reserved_address_bytes, 0);
    assert_int_equal(flw_sim_print_violations(&api->sim), 0);
    flw_sim_close(&api->sim);
}

static inline fallow_stats api_stats(struct api *api)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_int_equal(fallow_pool_get_stats(api->pool, &stats), FALLOW_OK);
    return stats;
}

static inline void *api_alloc(struct api *api, size_t size, CUstream stream)
{
    void *ptr = NULL;
    assert_int_equal(fallow_alloc(api->pool, size, stream, &ptr), FALLOW_OK);
    assert_non_null(ptr);
    return ptr;
}

/* A block with a tag and flags. */
static inline void *api_must_alloc(struct api *api, size_t size, uint32_t tag, uint32_t flags)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = size;
    request.tag = tag;
    request.flags = flags;
    assert_int_equal(fallow_alloc_request(api->pool, &request, api->stream, &ptr), FALLOW_OK);
    return ptr;
}

/* Begin a capture in the driver only; the test may announce it to the pool. */
static inline void api_begin_capturing(struct api *api, CUstream stream)
{
    assert_int_equal(api->sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     0);
}

/* The graph is the caller's to destroy. */
static inline CUgraph api_end_capturing(struct api *api, CUstream stream)
{
    CUgraph graph = NULL;
    assert_int_equal(api->sim.cu.cuStreamEndCapture(stream, &graph), 0);
    assert_non_null(graph);
    return graph;
}

static inline void api_drop_captured(struct api *api, CUstream stream)
{
    assert_int_equal(api->sim.cu.cuGraphDestroy(api_end_capturing(api, stream)), 0);
}

/* The device writes the whole block. */
static inline void api_use(struct api *api, void *ptr, size_t size, CUstream stream)
{
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, size, 1, 0};
    assert_int_equal(api->sim.touch(stream, &range, 1), 0);
}

/* ---- contents, sharing */

/* Memory with contents, watched by the rule checker. */
static inline flw_sim_config api_backed_world(void)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = 256 * MIB;
    return world;
}

static inline void api_begin_backed(struct api *api)
{
    flw_sim_config world = api_backed_world();
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static inline void api_fill(struct api *api, void *ptr, size_t size, unsigned char value)
{
    assert_int_equal(api->sim.cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)ptr, value, size), 0);
}

static inline bool api_holds(struct api *api, void *ptr, size_t size, unsigned char value)
{
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    assert_int_equal(api->sim.cu.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)ptr, size), 0);
    bool is_same = true;
    for (size_t i = 0; i < size && is_same; i++) {
        is_same = copy[i] == value;
    }
    free(copy);
    return is_same;
}

/* A pool with contents and exports, on the first of three devices. */
static inline void api_begin_sharing(struct api *api, uint32_t handle_types)
{
    flw_sim_config world = flw_sim_config_default(21);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = 256 * MIB;
    world.device_count = 3;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.handle_types = handle_types;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static inline fallow_share api_export(struct api *api, void *ptr, uint32_t type)
{
    fallow_share share;
    fallow_share_init(&share);
    assert_int_equal(fallow_export(api->pool, ptr, type, &share), FALLOW_OK);
    return share;
}

#endif
