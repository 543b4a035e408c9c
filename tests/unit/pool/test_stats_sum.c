/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: statistics never show more reserved bytes than the peak; peaks are those since the last reset, also while
 * threads allocate.
 */
#include "unit/pool/test_api.h"

#include <stdatomic.h>

#include "fallow/sleep.h"
#include "heap/heap.h"
#include "pool/pool.h"
#include "pool/state/table.h"

/* ---- the walk */

/* ---- random programs */

#define LIVE  64
#define STEPS 700

struct run {
    struct api api;
    CUstream streams[3];
    fallow_capture *capture; /* on streams[0]; NULL: none */
    bool is_capturing, has_context_order, can_sleep, is_asleep;
    uint64_t requested_bytes, peak_bytes; /* since the last reset of the peaks */
    struct {
        void *ptr;
        uint64_t size_bytes;
        int stream;
        bool is_captured;
    } live[LIVE];
    uint64_t random;
};

static uint64_t below(struct run *run, uint64_t end)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random % end;
}

static void *reset_peaks(void *pool)
{
    assert_int_equal(fallow_pool_reset_peaks(pool), FALLOW_OK);
    return NULL;
}

static void reset_peaks_elsewhere(fallow_pool *pool)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reset_peaks, pool), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- the peak, read while a driver allocation is in progress */

static struct api looker;
static CUresult (*real_alloc)(CUdeviceptr *pointer, size_t bytes);
static uint64_t seen_peak, looks;
static bool looks_on;

static CUresult CUDAAPI look_and_alloc(CUdeviceptr *out, size_t bytes)
{
    if (looks_on) {
        fallow_stats stats = api_stats(&looker);
        assert_true(stats.reserved_bytes <= stats.peak_reserved_bytes);
        assert_true(seen_peak <= stats.peak_reserved_bytes);
        seen_peak = stats.peak_reserved_bytes;
        looks++;
    }
    return real_alloc(out, bytes);
}

TEST(a_look_never_sees_more_reserved_than_the_peak)
{
    void *ptrs[4];
    api_begin(&looker, NULL);
    struct flw_driver driver = looker.sim.cu;
    struct flw_pool_place place = {.driver = &driver, .context_id = 9};
    fallow_pool_config config = api_config(&looker);
    config.order = FALLOW_ORDER_CONTEXT;
    real_alloc = driver.cuMemAlloc_v2;
    driver.cuMemAlloc_v2 = look_and_alloc;
    assert_int_equal(flw_pool_create(&config, &place, &looker.pool), FALLOW_OK);
    looks_on = true;
    for (int i = 0; i < 4; i++) {
        if (i == 2) { /* a failed growth does not count for the peak */
            assert_int_equal((looker.sim.fail)("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 1);
        }
        ptrs[i] = api_alloc(&looker, (size_t)(i + 1) * 8 * MIB, looker.stream);
        assert_int_equal(api_stats(&looker).peak_reserved_bytes,
                         flw_sim_read_ledger(&looker.sim).peak_given_bytes);
    }
    assert_true(looks >= 5);
    looks_on = false;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fallow_free(looker.pool, ptrs[i], looker.stream), FALLOW_OK);
    }
    api_end(&looker);
}

/* ---- peaks reset while threads allocate */

#define THREADS    4
#define ROUNDS     2000
#define KEPT       16
#define BLOCK_MOST ((size_t)100 << 10)

struct worker {
    struct api *api;
    CUstream stream;
    pthread_t thread;
    uint64_t random;
    atomic_uint *working;
};

static void *allocate_and_free(void *argument)
{
    struct worker *worker = argument;
    struct run run = {.random = worker->random};
    void *kept[KEPT] = {NULL};
    for (int i = 0; i < ROUNDS + KEPT; i++) {
        void **at = &kept[i % KEPT];
        assert_int_equal(fallow_free(worker->api->pool, *at, worker->stream), FALLOW_OK);
        *at =
            i < ROUNDS ? api_alloc(worker->api, 1 + below(&run, BLOCK_MOST), worker->stream) : NULL;
    }
    atomic_fetch_sub(worker->working, 1);
    return NULL;
}

TEST(peaks_are_reset_while_threads_allocate)
{
    struct api api;
    struct worker workers[THREADS];
    atomic_uint working = THREADS;
    flw_sim_config world = flw_sim_config_default(3);
    api_begin(&api, &world);
    api.pool = api_create(&api);
    void *held = api_alloc(&api, 7 * MIB, api.stream);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.api = &api, .random = i + 1, .working = &working};
        assert_int_equal(api.sim.cu.cuStreamCreate(&workers[i].stream, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, allocate_and_free, &workers[i]),
                         0);
    }
    uint64_t most = 7 * MIB + THREADS * KEPT * BLOCK_MOST;
    while (atomic_load(&working) != 0) {
        assert_int_equal(fallow_pool_reset_peaks(api.pool), FALLOW_OK);
        fallow_stats stats = api_stats(&api);
        assert_in_range(stats.peak_requested_bytes, 7 * MIB, 2 * most); /* cached at most as much */
        assert_true(stats.peak_live_bytes >= stats.peak_requested_bytes);
        assert_true(stats.peak_reserved_bytes >= stats.reserved_bytes);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    assert_int_equal(fallow_pool_reset_peaks(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB); /* nothing is left of theirs */
    assert_int_equal(api_ask_elsewhere(&api, api.stream), FALLOW_OK);
    assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB + 300);
    for (int i = 0; i < 4; i++) { /* hits alone, which reach the same peak again */
        reset_peaks_elsewhere(api.pool);
        void *block = api_alloc(&api, 5000, api.stream);
        assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
        assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB + 5000);
    }
    assert_int_equal(fallow_free(api.pool, held, api.stream), FALLOW_OK);
    api_end(&api);
}

FLW_TEST_MAIN(NULL, NULL)
