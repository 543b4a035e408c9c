/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of libfallow-host's tests: a checked world, a device pool, a host pool,
 * device memory as a destination of copies. */
#ifndef FLW_TESTS_UNIT_TEST_HOST_H
#define FLW_TESTS_UNIT_TEST_HOST_H

#include "support/test.h"

#include <stdbool.h>
#include <string.h>

#include "fallow/host.h"
#include "support/sim.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct host_bed {
    struct flw_sim sim;
    fallow_pool *pool;
    fallow_host *host;
    CUstream stream, other;
    CUdeviceptr device;
    char log[512]; /* the last line */
};

/* The world of the running test. */
static struct host_bed bed;

#define DEVICE_BYTES (64 * MIB)

static inline void host_log(void *context, fallow_log_level level, const char *message)
{
    (void)context, (void)level;
    snprintf(bed.log, sizeof bed.log, "%s", message);
}

static inline fallow_host_config host_config(void)
{
    fallow_host_config config;
    fallow_host_config_init(&config);
    config.limit_bytes = 256 * MIB;
    config.wait_ms = UINT32_MAX;
    config.log = host_log;
    return config;
}

static inline void host_create(const fallow_host_config *config)
{
    assert_ok(fallow_host_create(bed.pool, config, &bed.host));
}

/* A held, checked world with contents, a device pool, two streams; the host pool is the caller's. */
static inline void host_begin_world(const flw_sim_config *world)
{
    flw_sim_config usual = flw_sim_config_default(11);
    usual.schedule = FLW_SIM_HELD;
    usual.check = 1;
    usual.backed = 1;
    memset(&bed, 0, sizeof bed);
    assert_true(flw_sim_open(&bed.sim));
    flw_sim_begin(&bed.sim, world != NULL ? world : &usual);
    assert_ok(bed.sim.cu.cuStreamCreate(&bed.stream, CU_STREAM_NON_BLOCKING));
    assert_ok(bed.sim.cu.cuStreamCreate(&bed.other, CU_STREAM_NON_BLOCKING));
    assert_ok(bed.sim.cu.cuMemAlloc_v2(&bed.device, DEVICE_BYTES));
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    assert_ok(fallow_pool_create(&config, &bed.pool));
}

static inline void host_begin(void)
{
    host_begin_world(NULL);
    fallow_host_config config = host_config();
    host_create(&config);
}

static inline fallow_host_stats host_stats(void)
{
    fallow_host_stats stats;
    fallow_host_stats_init(&stats);
    assert_ok(fallow_host_get_stats(bed.host, &stats));
    return stats;
}

/* Check the pool's invariants, and the accounts with the driver's ledger. */
static inline void host_check(void)
{
    char text[256];
    if (fallow_host_validate(bed.host) != FALLOW_OK) {
        fallow_host_last_error(bed.host, text, sizeof text);
        fail_msg("%s", text);
    }
    assert_int_equal(flw_sim_read_ledger(&bed.sim).pinned_bytes, host_stats().reserved_bytes);
}

/* End a test. Nothing may be left; check the host pool if there is one. */
static inline void host_end(void)
{
    if (bed.host != NULL) {
        host_check();
    }
    fallow_host_destroy(bed.host);
    fallow_pool_destroy(bed.pool);
    assert_ok(bed.sim.cu.cuMemFree_v2(bed.device));
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed.sim);
    assert_int_equal(ledger.pinned_bytes, 0);
    assert_int_equal(ledger.given_bytes, 0);
    assert_int_equal(ledger.event_count, 0);
    assert_int_equal(flw_sim_print_violations(&bed.sim), 0);
    flw_sim_close(&bed.sim);
}

static inline void *host_alloc(size_t bytes)
{
    void *block = NULL;
    fallow_status status = fallow_host_alloc(bed.host, bytes, &block);
    if (status != FALLOW_OK) {
        char text[256];
        fallow_host_last_error(bed.host, text, sizeof text);
        fail_msg("%zu bytes: %s: %s", bytes, fallow_status_name(status), text);
    }
    assert_non_null(block);
    return block;
}

static inline void host_free(void *block, CUstream stream)
{
    assert_ok(fallow_host_free(bed.host, block, stream));
}

/* The first `bytes` of a block to the device, given to a stream. */
static inline void host_copy(const void *block, size_t bytes, CUstream stream)
{
    assert_ok(bed.sim.cu.cuMemcpyHtoDAsync_v2(bed.device, block, bytes, stream));
}

/* The byte of device memory at an offset, when the stream is done. */
static inline unsigned char host_read_back(size_t offset, CUstream stream)
{
    unsigned char byte = 0;
    assert_ok(bed.sim.cu.cuStreamSynchronize(stream));
    assert_ok(bed.sim.cu.cuMemcpyDtoH_v2(&byte, bed.device + offset, 1));
    return byte;
}

static inline bool host_says(const char *part)
{
    char text[256];
    fallow_host_last_error(bed.host, text, sizeof text);
    if (strstr(text, part) == NULL) {
        print_error("'%s' does not contain '%s'\n", text, part);
        return false;
    }
    return true;
}

#endif
