/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: locking all caches of a pool: one barrier for all of them, no shared lock held while
 * waiting for an owner, and the fallback after the kernel refuses the barrier.
 * Does not: race (tests/stress), or call the kernel: the barrier is wrapped here, counted and
 * refused. */
#include "support/test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fallow/trace.h"
#include "pool/pool.h"
#include "test_api.h"

#define STREAMS 12
#define BLOCKS  4

bool __real_flw_asym_barrier(void);
bool __wrap_flw_asym_barrier(void);
void __real_flw_asym_slow_barrier(void);
void __wrap_flw_asym_slow_barrier(void);

static atomic_uint barriers, slow_barriers;
static atomic_bool refuses;

bool __wrap_flw_asym_barrier(void)
{
    atomic_fetch_add(&barriers, 1);
    return !atomic_load(&refuses) && __real_flw_asym_barrier();
}

void __wrap_flw_asym_slow_barrier(void)
{
    atomic_fetch_add(&slow_barriers, 1);
    __real_flw_asym_slow_barrier();
}

struct bed {
    struct api api;
    CUstream streams[STREAMS];
    char last_line[512];
    unsigned lines; /* of the log that name membarrier */
    CUcontext context;
};

static void count_line(void *context, fallow_log_level level, const char *message)
{
    struct bed *bed = context;
    if (strstr(message, "membarrier") != NULL) {
        assert_int_equal(level, FALLOW_LOG_WARNING);
        bed->lines++;
        snprintf(bed->last_line, sizeof bed->last_line, "%s", message);
    }
}

static void begin(struct bed *bed, fallow_pool_config *config)
{
    memset(bed, 0, sizeof *bed);
    api_begin(&bed->api, NULL);
    assert_int_equal(bed->api.sim.cu.cuCtxGetCurrent(&bed->context), 0);
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(bed->api.sim.cu.cuStreamCreate(&bed->streams[i], CU_STREAM_NON_BLOCKING),
                         0);
    }
    config->driver = "sim";
    config->log = count_line;
    config->log_context = bed;
    assert_int_equal(fallow_pool_create(config, &bed->api.pool), FALLOW_OK);
    atomic_store(&refuses, false);
    atomic_store(&barriers, 0);
    atomic_store(&slow_barriers, 0);
}

static void end(struct bed *bed)
{
    assert_int_equal(fallow_pool_validate(bed->api.pool), FALLOW_OK);
    fallow_pool_destroy(bed->api.pool);
    api_end(&bed->api);
}

/* Something into each cache. */
static void fill_caches(struct bed *bed)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        void *blocks[BLOCKS];
        for (unsigned b = 0; b < BLOCKS; b++) {
            size_t bytes = b % 2 == 0 ? 5000 : 3 * MIB;
            assert_int_equal(fallow_alloc(bed->api.pool, bytes, bed->streams[i], &blocks[b]), 0);
        }
        for (unsigned b = 0; b < BLOCKS; b++) {
            assert_int_equal(fallow_free(bed->api.pool, blocks[b], bed->streams[i]), 0);
        }
    }
}

static fallow_stats stats_of(struct bed *bed)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_int_equal(fallow_pool_get_stats(bed->api.pool, &stats), FALLOW_OK);
    return stats;
}

static void drain(struct bed *bed)
{
    assert_int_equal(fallow_pool_trim(bed->api.pool, SIZE_MAX, 0, NULL), FALLOW_OK);
}

TEST(one_barrier_serves_all_caches)
{
    struct bed bed;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    begin(&bed, &config);
    for (unsigned round = 1; round <= 3; round++) {
        fill_caches(&bed);
        assert_true(stats_of(&bed).cached_bytes > 0);
        unsigned before = atomic_load(&barriers);
        drain(&bed);
        assert_int_equal(atomic_load(&barriers), before + 1);
        assert_true(stats_of(&bed).cached_bytes == 0);
    }
    unsigned before = atomic_load(&barriers);
    assert_int_equal(fallow_stream_retire(bed.api.pool, bed.streams[0]), FALLOW_OK);
    assert_int_equal(atomic_load(&barriers), before + 1);
    end(&bed);
}

TEST(caches_that_are_closed_need_none)
{
    struct bed bed;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.streams_may_die = 1;
    begin(&bed, &config);
    fill_caches(&bed);
    drain(&bed);
    assert_int_equal(atomic_load(&barriers), 0);
    assert_true(stats_of(&bed).cached_bytes == 0);
    end(&bed);
}

/* ---- an owner that stays inside */

struct crowd {
    struct bed *bed;
    struct flw_tcache *held; /* its owner is inside */
    sem_t has_passed;
    atomic_bool is_drained;
    atomic_uint failures;
};

/* An assertion of cmocka ends only the thread in which it fails. */
static void expect(struct crowd *crowd, int answer)
{
    atomic_fetch_add(&crowd->failures, answer != 0);
}

static void *drain_meanwhile(void *argument)
{
    struct crowd *crowd = argument;
    expect(crowd, crowd->bed->api.sim.cu.cuCtxSetCurrent(crowd->bed->context));
    expect(crowd, fallow_pool_trim(crowd->bed->api.pool, SIZE_MAX, 0, NULL));
    atomic_store(&crowd->is_drained, true);
    return NULL;
}

/* Take the pool's lock, and the lock of every cache except the held one. */
static void *pass_by(void *argument)
{
    struct crowd *crowd = argument;
    const struct bed *bed = crowd->bed;
    fallow_stats stats;
    void *block;
    fallow_stats_init(&stats);
    expect(crowd, bed->api.sim.cu.cuCtxSetCurrent(bed->context));
    expect(crowd, fallow_pool_get_stats(bed->api.pool, &stats));
    for (unsigned i = 0; i < 2; i++) { /* caches are made; the pool is too small to empty others */
        expect(crowd, fallow_alloc(bed->api.pool, 5000, bed->streams[i], &block));
        expect(crowd, fallow_free(bed->api.pool, block, bed->streams[i]));
    }
    sem_post(&crowd->has_passed);
    return NULL; /* the caches end too, after the drain */
}

static bool passes_soon(struct crowd *crowd)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60; /* else it hangs: only to end the test */
    int result;
    while ((result = sem_timedwait(&crowd->has_passed, &until)) != 0 && errno == EINTR) {
    }
    return result == 0;
}

TEST(no_thread_waits_for_one_that_waits_for_an_owner)
{
    struct bed bed;
    fallow_pool_config config;
    pthread_t drainer, passer;
    struct crowd crowd = {.bed = &bed};
    fallow_pool_config_init(&config);
    begin(&bed, &config);
    void *block;
    assert_int_equal(fallow_alloc(bed.api.pool, 5000, bed.streams[0], &block), FALLOW_OK);
    assert_int_equal(fallow_free(bed.api.pool, block, bed.streams[0]), FALLOW_OK);
    crowd.held = (struct flw_tcache *)(void *)flw_tls_cache;
    const void *open_key = crowd.held->hot.key;
    sem_init(&crowd.has_passed, 0, 0);
    flw_asym_enter(&crowd.held->hot.asym);
    assert_true(flw_asym_key_is(&crowd.held->hot.key, open_key));
    assert_int_equal(pthread_create(&drainer, NULL, drain_meanwhile, &crowd), 0);
    while (__atomic_load_n(&crowd.held->hot.key, __ATOMIC_ACQUIRE) == open_key) {
        usleep(100);
    }
    usleep(2000); /* it waits by now; otherwise the test passes without testing */
    assert_int_equal(pthread_create(&passer, NULL, pass_by, &crowd), 0);
    bool has_passed = passes_soon(&crowd);
    bool is_drained = atomic_load(&crowd.is_drained);
    flw_asym_leave(&crowd.held->hot.asym);
    pthread_join(drainer, NULL);
    pthread_join(passer, NULL);
    assert_true(has_passed);
    assert_int_equal(atomic_load(&crowd.failures), 0);
    assert_false(is_drained); /* has waited for the owner */
    assert_true(atomic_load(&crowd.is_drained));
    end(&bed);
}

/* Drain, cancelled (deferred, the default) before it begins. */
static void *drain_cancelled(void *argument)
{
    struct crowd *crowd = argument;
    expect(crowd, crowd->bed->api.sim.cu.cuCtxSetCurrent(crowd->bed->context));
    expect(crowd, pthread_cancel(pthread_self()));
    expect(crowd, fallow_pool_trim(crowd->bed->api.pool, SIZE_MAX, 0, NULL));
    atomic_store(&crowd->is_drained, true);
    pthread_testcancel();
    return NULL;
}

/* Otherwise the caches stay locked for good, and the next thread waits for ever. */
TEST(a_cancelled_thread_ends_when_its_call_has)
{
    struct bed bed;
    fallow_pool_config config;
    pthread_t drainer;
    struct crowd crowd = {.bed = &bed};
    fallow_pool_config_init(&config);
    begin(&bed, &config);
    fill_caches(&bed);
    struct flw_asym *asym = &flw_tls_cache->asym;
    flw_asym_enter(asym);
    assert_int_equal(pthread_create(&drainer, NULL, drain_cancelled, &crowd), 0);
    usleep(20000); /* it sleeps between two checks by now; otherwise the test passes without
                       testing */
    bool is_drained = atomic_load(&crowd.is_drained);
    flw_asym_leave(asym);
    void *result;
    pthread_join(drainer, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_false(is_drained); /* has waited for the owner */
    assert_true(atomic_load(&crowd.is_drained));
    assert_int_equal(atomic_load(&crowd.failures), 0);
    end(&bed);
}

/* ---- the kernel refuses */

TEST(a_refused_barrier_ends_all_hits)
{
    struct bed bed;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    begin(&bed, &config);
    fill_caches(&bed);
    fallow_stats before = stats_of(&bed);
    if (!before.uses_membarrier) {
        skip();
    }
    assert_int_equal(before.lost_membarrier, 0);
    unsigned asked = atomic_load(&barriers);
    atomic_store(&refuses, true);
    drain(&bed);
    fallow_stats after = stats_of(&bed);
    assert_int_equal(after.uses_membarrier, 0);
    assert_int_equal(after.lost_membarrier, 1);
    assert_int_equal(bed.lines, 1);
    flw_test_expect_in(bed.last_line, "none is a hit");
    assert_int_equal(atomic_load(&slow_barriers), 1);
    fill_caches(&bed); /* the caches of before, and blocks that were hits */
    fallow_stats last = stats_of(&bed);
    assert_true(last.alloc_count == after.alloc_count + STREAMS * BLOCKS);
    assert_true(last.hit_count == after.hit_count); /* none */
    drain(&bed);
    drain(&bed);
    assert_true(stats_of(&bed).cached_bytes == 0);
    assert_int_equal(atomic_load(&barriers), asked + 1); /* nothing is open: none is needed */
    assert_int_equal(atomic_load(&slow_barriers), 1);
    assert_int_equal(bed.lines, 1);
    end(&bed);
}

/* The recorder orders the owners of the rings by barriers too. */
TEST(a_recording_goes_on_without_barriers)
{
    struct bed bed;
    fallow_pool_config config;
    fallow_record_config record;
    fallow_recorder *recorder;
    char path[] = "/tmp/fallow_seize_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    fallow_pool_config_init(&config);
    begin(&bed, &config);
    fallow_record_config_init(&record);
    record.path = path;
    assert_int_equal(fallow_record_start(bed.api.pool, &record, &recorder), FALLOW_OK);
    fill_caches(&bed);
    atomic_store(&refuses, true);
    drain(&bed);
    assert_int_equal(fallow_record_dump(recorder, NULL), FALLOW_OK); /* flushes the rings */
    unsigned asked = atomic_load(&barriers);
    assert_int_equal(atomic_load(&slow_barriers), 2); /* for the caches, and for the rings */
    fill_caches(&bed);
    assert_int_equal(fallow_record_dump(recorder, NULL), FALLOW_OK);
    assert_int_equal(fallow_record_stop(recorder), FALLOW_OK);
    assert_int_equal(atomic_load(&barriers), asked); /* the owners order their stores themselves */
    assert_int_equal(bed.lines, 1);
    unlink(path);
    end(&bed);
}

FLW_TEST_MAIN(NULL, NULL)
