/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool between a real-time thread and an ordinary one on the same processor. The ordinary thread
 * allocates and frees all the time, so the other, which comes by from time to time, finds it inside
 * a cache, or with a lock of the pool. It must not spin there.
 * Does not: look at the single waits (test_realtime.c).
 */
#include "support/test.h"

#include <stdatomic.h>

#include "fallow/fallow.h"
#include "stress/realtime.h"
#include "support/sim.h"

#define VISITS       400
#define STOPPED_MOST 3 /* by what else the kernel has on this processor */
#define KEPT         24

static struct {
    struct flw_sim sim;
    CUcontext context;
    CUstream streams[2];
    fallow_pool *pool;
    atomic_bool is_over;
    atomic_uint failures;
    uint64_t trades;
    unsigned visits;
    struct turns turns; /* the real-time thread's */
} bed;

static void expect_ok(fallow_status status)
{
    atomic_fetch_add(&bed.failures, status != FALLOW_OK);
}

/* The ordinary thread: slots, which are hits mostly, and runs, which take the heap's lock. */
static void *trade(void *unused)
{
    void *kept[KEPT] = {0};
    uint64_t random = 1;
    (void)unused;
    while (!atomic_load(&bed.is_over)) {
        uint64_t draw = flw_test_random(&random);
        void **block = &kept[draw % KEPT];
        size_t bytes =
            (draw >> 8) % 2 == 0 ? 1 + (draw >> 16) % 60000 : 1 + (draw >> 16) % (12u << 20);
        expect_ok(fallow_free(bed.pool, *block, bed.streams[0]));
        expect_ok(fallow_alloc(bed.pool, bytes, bed.streams[0], block));
        bed.trades++;
    }
    for (unsigned i = 0; i < KEPT; i++) {
        expect_ok(fallow_free(bed.pool, kept[i], bed.streams[0]));
    }
    return NULL;
}

static void visit(unsigned round)
{
    fallow_stats stats;
    void *block;
    fallow_stats_init(&stats);
    expect_ok(fallow_pool_get_stats(bed.pool, &stats));
    expect_ok(fallow_alloc(bed.pool, (size_t)(1 + round % 9) << 20, bed.streams[1], &block));
    expect_ok(fallow_free(bed.pool, block, bed.streams[1]));
    expect_ok(fallow_pool_trim(bed.pool, SIZE_MAX, 0, NULL)); /* empties all caches */
}

static void *come_by(void *unused)
{
    (void)unused;
    if (bed.sim.cu.cuCtxSetCurrent(bed.context) != CUDA_SUCCESS) {
        abort();
    }
    struct turns before = turns_now();
    while (bed.visits < VISITS && bed.turns.stopped <= STOPPED_MOST) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 300000 + 977 * (long)bed.visits}, NULL);
        visit(bed.visits++);
        bed.turns = turns_since(&before);
    }
    atomic_store(&bed.is_over, true);
    return NULL;
}

static void a_realtime_thread_waits_asleep(void **state)
{
    fallow_pool_config config;
    pthread_t ordinary, realtime;
    assert_true(flw_sim_open(&bed.sim));
    bed.context = flw_sim_begin(&bed.sim, NULL);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(bed.sim.cu.cuStreamCreate(&bed.streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    assert_int_equal(fallow_pool_create(&config, &bed.pool), FALLOW_OK);
    assert_true(stay_on_one_processor());
    if (!start_realtime(&realtime, come_by, NULL)) {
        exit(FLW_TEST_SKIPPED);
    }
    assert_int_equal(pthread_create(&ordinary, NULL, trade, NULL), 0);
    pthread_join(realtime, NULL);
    pthread_join(ordinary, NULL);
    print_message("%u visits among %llu trades: slept %ld times, stopped %ld times\n", bed.visits,
                  (unsigned long long)bed.trades, bed.turns.slept, bed.turns.stopped);
    assert_int_equal(atomic_load(&bed.failures), 0);
    assert_true(bed.turns.stopped <= STOPPED_MOST);
    assert_true(bed.trades > VISITS);
    assert_true(bed.turns.slept >= VISITS); /* the naps between; more where it had to wait */
    assert_int_equal(fallow_pool_validate(bed.pool), FALLOW_OK);
    fallow_pool_destroy(bed.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_realtime_thread_waits_asleep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
