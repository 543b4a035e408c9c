/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the end of a stream from inside: other threads' uses of the handle during and after the
 * retire. Hooked driver calls stop the threads at chosen points.
 * Does not: test the memory released by a retire (streams.script). */
#include "test_api.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "fallow/sleep.h"
#include "pool/pool.h"
#include "support/trim.h"

static struct bed {
    struct api api;
    const struct flw_driver *cu;
    void *block;
    CUstream dying, living;
    pthread_t retirer, helper;
    CUcontext context;
    sem_t has_recorded, has_freed, is_retired;
    bool has_fence; /* the retirer's own */
    bool is_met;    /* the other thread has run */
    atomic_bool recorded_late;
} bed;

static bool is_retirer(void)
{
    return pthread_equal(pthread_self(), bed.retirer) != 0;
}

/* The other thread's record, if any, lasts until the retire is over. */
static CUresult record(CUevent event, CUstream stream)
{
    if (stream == bed.dying && is_retirer()) {
        bed.has_fence = true;
    } else if (stream == bed.dying) {
        atomic_store(&bed.recorded_late, true);
        sem_post(&bed.has_freed);
        sem_wait(&bed.is_retired);
    }
    return bed.cu->cuEventRecord(event, stream);
}

/* The last driver call of a retire: here the other thread has its turn. */
static CUresult exchange(CUstreamCaptureMode *mode)
{
    if (is_retirer() && bed.has_fence && !bed.is_met) {
        bed.is_met = true;
        sem_post(&bed.has_recorded);
        sem_wait(&bed.has_freed);
    }
    return bed.cu->cuThreadExchangeStreamCaptureMode(mode);
}

/* Frees a block that the dying stream was announced for, and wants a fence of every stream. */
static void *free_and_trim(void *unused)
{
    sem_wait(&bed.has_recorded);
    bool good = bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS &&
                fallow_free(bed.api.pool, bed.block, bed.living) == FALLOW_OK &&
                fallow_pool_trim(bed.api.pool, 0, 0, NULL) == FALLOW_OK;
    sem_post(&bed.has_freed);
    return good ? unused : NULL;
}

/* The stream may be destroyed, and the handle reused, as soon as the retire returns. */
TEST(no_thread_records_on_a_stream_that_has_been_retired)
{
    void *end = NULL;
    api_begin_with_pool(&bed.api);
    struct flw_pool *pool = flw_pool_of(bed.api.pool);
    bed.cu = &bed.api.sim.cu;
    bed.dying = bed.api.stream;
    bed.living = bed.api.other;
    bed.retirer = pthread_self();
    assert_int_equal(bed.cu->cuCtxGetCurrent(&bed.context), 0);
    sem_init(&bed.has_recorded, 0, 0);
    sem_init(&bed.has_freed, 0, 0);
    sem_init(&bed.is_retired, 0, 0);
    bed.block = api_alloc(&bed.api, 3 * MIB, bed.living);
    assert_int_equal(fallow_record_use(bed.api.pool, bed.block, bed.dying), FALLOW_OK);
    assert_int_equal(pthread_create(&bed.helper, NULL, free_and_trim, &bed), 0);
    pool->driver.cuEventRecord = record;
    pool->driver.cuThreadExchangeStreamCaptureMode = exchange;
    assert_int_equal(fallow_stream_retire(bed.api.pool, bed.dying), FALLOW_OK);
    sem_post(&bed.is_retired);
    assert_int_equal(pthread_join(bed.helper, &end), 0);
    assert_ptr_equal(end, &bed);
    assert_true(bed.is_met);
    assert_false(atomic_load(&bed.recorded_late));
    bed.api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(bed.api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&bed.api).reserved_bytes, 0); /* the last fence covers the block */
    assert_int_equal(fallow_pool_validate(bed.api.pool), FALLOW_OK);
    api_end(&bed.api);
}

/* ---- questions */

static struct {
    sem_t is_asked, is_retired;
    bool is_query; /* query outstanding work, else a capture */
    atomic_bool asked, retired_while_asked;
} asking;

/* The other thread's query: the retire may finish before the answer. */
static void dwell(CUstream stream, bool is_query)
{
    if (stream != bed.dying || is_retirer() || is_query != asking.is_query ||
        atomic_exchange(&asking.asked, true)) {
        return;
    }
    sem_post(&asking.is_asked);
    for (int i = 0; i < 2000 && !atomic_load(&asking.retired_while_asked); i++) {
        atomic_store(&asking.retired_while_asked, sem_trywait(&asking.is_retired) == 0);
        sched_yield();
    }
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    dwell(stream, false);
    return bed.cu->cuStreamIsCapturing(stream, status);
}

static CUresult query(CUstream stream)
{
    dwell(stream, true);
    return bed.cu->cuStreamQuery(stream);
}

static void *sleep_at_once(void *unused)
{
    fallow_status status = bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS
                               ? fallow_pool_sleep(bed.api.pool, NULL)
                               : FALLOW_INVALID_ARGUMENT;
    return status == FALLOW_OK || status == FALLOW_BUSY ? unused : NULL; /* the retire's fence */
}

static void retire_while_a_sleep_asks(bool is_query)
{
    void *end = NULL;
    api_begin_with_pool(&bed.api);
    struct flw_pool *pool = flw_pool_of(bed.api.pool);
    bed.cu = &bed.api.sim.cu;
    bed.dying = bed.api.stream;
    bed.retirer = pthread_self();
    assert_int_equal(bed.cu->cuCtxGetCurrent(&bed.context), 0);
    sem_init(&asking.is_asked, 0, 0);
    sem_init(&asking.is_retired, 0, 0);
    asking.is_query = is_query;
    atomic_store(&asking.asked, false);
    void *block = api_alloc(&bed.api, 3 * MIB, bed.dying);
    assert_int_equal(fallow_free(bed.api.pool, block, bed.dying), FALLOW_OK);
    pool->driver.cuStreamIsCapturing = is_capturing;
    pool->driver.cuStreamQuery = query;
    pool->driver.cuCtxRecordEvent = NULL; /* else no stream of the context is queried */
    assert_int_equal(pthread_create(&bed.helper, NULL, sleep_at_once, &bed), 0);
    sem_wait(&asking.is_asked);
    assert_int_equal(fallow_stream_retire(bed.api.pool, bed.dying), FALLOW_OK);
    sem_post(&asking.is_retired);
    assert_int_equal(pthread_join(bed.helper, &end), 0);
    assert_ptr_equal(end, &bed);
    assert_false(atomic_load(&asking.retired_while_asked));
    assert_int_equal(fallow_pool_wake(bed.api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(bed.api.pool), FALLOW_OK);
    api_end(&bed.api);
}

TEST(no_thread_asks_about_a_stream_that_has_been_retired)
{
    retire_while_a_sleep_asks(false);
    retire_while_a_sleep_asks(true);
}

static CUresult is_capturing_but_dead(CUstream stream, CUstreamCaptureStatus *status)
{
    assert_ptr_not_equal(stream, bed.dying);
    return bed.cu->cuStreamIsCapturing(stream, status);
}

static CUresult query_but_dead(CUstream stream)
{
    assert_ptr_not_equal(stream, bed.dying);
    return bed.cu->cuStreamQuery(stream);
}

TEST(no_thread_asks_about_a_stream_that_may_have_died)
{
    api_begin(&bed.api, NULL);
    fallow_pool_config config = api_config(&bed.api);
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &bed.api.pool), FALLOW_OK);
    struct flw_pool *pool = flw_pool_of(bed.api.pool);
    bed.cu = &bed.api.sim.cu;
    bed.dying = bed.api.stream;
    void *block = api_alloc(&bed.api, 3 * MIB, bed.dying);
    assert_int_equal(fallow_free(bed.api.pool, block, bed.dying), FALLOW_OK);
    bed.api.sim.step(UINT64_MAX);
    assert_int_equal(bed.cu->cuStreamDestroy_v2(bed.dying), 0);
    pool->driver.cuStreamIsCapturing = is_capturing_but_dead;
    pool->driver.cuStreamQuery = query_but_dead;
    assert_int_equal(flw_test_trim(bed.api.pool, 0), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(bed.api.pool, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(bed.api.pool), FALLOW_OK);
    pool->driver.cuCtxRecordEvent = NULL;
    block = api_alloc(&bed.api, 3 * MIB, bed.api.other);
    assert_int_equal(fallow_free(bed.api.pool, block, bed.api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(bed.api.pool, NULL), FALLOW_BUSY); /* the free's fence */
    bed.api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_sleep(bed.api.pool, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(bed.api.pool), FALLOW_OK);
    api_end(&bed.api);
}

/* ---- a block leaving quarantine */

static CUresult copy_and_dwell(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    dwell(stream, true);
    return bed.cu->cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

static void *trim(void *unused)
{
    bool good = bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS &&
                fallow_pool_trim(bed.api.pool, 0, 0, NULL) == FALLOW_OK;
    return good ? unused : NULL;
}

TEST(no_thread_frees_on_a_stream_that_has_been_retired)
{
    void *end = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    api_begin(&bed.api, &world);
    fallow_pool_config config = api_config(&bed.api);
    config.checks = FALLOW_CHECK_QUARANTINE;
    assert_int_equal(fallow_pool_create(&config, &bed.api.pool), FALLOW_OK);
    bed.cu = &bed.api.sim.cu;
    bed.dying = bed.api.stream;
    bed.retirer = pthread_self();
    assert_int_equal(bed.cu->cuCtxGetCurrent(&bed.context), 0);
    sem_init(&asking.is_asked, 0, 0);
    sem_init(&asking.is_retired, 0, 0);
    asking.is_query = true;
    atomic_store(&asking.asked, false);
    atomic_store(&asking.retired_while_asked, false);
    void *block = api_alloc(&bed.api, 3 * MIB, bed.dying);
    assert_int_equal(fallow_free(bed.api.pool, block, bed.dying), FALLOW_OK);
    flw_pool_of(bed.api.pool)->driver.cuMemcpyDtoHAsync_v2 = copy_and_dwell;
    assert_int_equal(pthread_create(&bed.helper, NULL, trim, &bed), 0);
    sem_wait(&asking.is_asked);
    assert_int_equal(fallow_stream_retire(bed.api.pool, bed.dying), FALLOW_OK);
    sem_post(&asking.is_retired);
    assert_int_equal(pthread_join(bed.helper, &end), 0);
    assert_ptr_equal(end, &bed);
    assert_false(atomic_load(&asking.retired_while_asked));
    api_end(&bed.api);
}

/* ---- threads that use a new stream under the handle of a destroyed one */

#define MEETERS 3
#define ROUNDS  400

static pthread_barrier_t gathering; /* MEETERS and the thread that renews the stream */

static void *meet(void *argument)
{
    struct api *api = argument;
    uintptr_t refused = bed.cu->cuCtxSetCurrent(bed.context) != CUDA_SUCCESS;
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *block = NULL;
        pthread_barrier_wait(&gathering);
        refused += fallow_alloc(api->pool, 5000, api->stream, &block) != FALLOW_OK ||
                   fallow_free(api->pool, block, api->stream) != FALLOW_OK;
        pthread_barrier_wait(&gathering);
    }
    return (void *)refused;
}

TEST(threads_may_meet_a_recycled_handle_at_once)
{
    flw_sim_config world = flw_sim_config_default(7);
    pthread_t threads[MEETERS];
    world.check = 1;
    api_begin(&bed.api, &world);
    fallow_pool_config config = api_config(&bed.api);
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &bed.api.pool), FALLOW_OK);
    bed.cu = &bed.api.sim.cu;
    assert_int_equal(bed.cu->cuCtxGetCurrent(&bed.context), 0);
    CUstream first = bed.api.stream;
    pthread_barrier_init(&gathering, NULL, MEETERS + 1);
    for (unsigned i = 0; i < MEETERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, meet, &bed.api), 0);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&gathering);
        pthread_barrier_wait(&gathering); /* the other threads wait for the next round */
        assert_int_equal(bed.cu->cuStreamDestroy_v2(first), 0);
        assert_int_equal(bed.cu->cuStreamCreate(&bed.api.stream, CU_STREAM_NON_BLOCKING), 0);
        assert_ptr_equal(bed.api.stream, first);
    }
    for (unsigned i = 0; i < MEETERS; i++) {
        void *refused = NULL;
        assert_int_equal(pthread_join(threads[i], &refused), 0);
        assert_null(refused);
    }
    pthread_barrier_destroy(&gathering);
    assert_int_equal(fallow_pool_validate(bed.api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&bed.api).lost_streams, ROUNDS - 1);
    api_end(&bed.api);
}

FLW_TEST_MAIN(NULL, NULL)
