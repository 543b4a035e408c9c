/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the race for handles. One thread begins, joins, ends and releases captures on its own
 * streams; others pass the handle of the current capture, and handles of old captures, to every
 * call that takes one. Another thread's capture continues undisturbed.
 *
 *   test_handle_race [--rounds N] */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/pool_under_test.h"
#include "support/sim.h"

#define STRANGERS  2
#define REMEMBERED 64 /* handles that a stranger keeps */
#define ALLOCATES \
    64             /* one of this many captures allocates, because the memory returns late; the
                       other capture lasts as long */
#define LEAST   20 /* joins of strangers before the race may end */
#define MOST    20 /* most rounds, as a multiple, on a busy machine */
#define STREAMS (3 + STRANGERS)

static struct race {
    struct flw_sim sim;
    CUcontext context;
    CUstream streams[STREAMS]; /* two of the owner's, one of the other capture, one a stranger */
    const struct flw_put_ops *ops;
    void *pool;
    unsigned rounds;
    atomic_uint round;
    atomic_bool is_over;
    fallow_capture *_Atomic present;
    atomic_uint joined_count, ended_count, refused_count;
} race;

static void require(bool is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "handle_race: %s\n", what);
        exit(1);
    }
}

/* Whatever the others do, each answer is one of these. */
static bool is_one_of(fallow_status status, fallow_status one, fallow_status other)
{
    return status == FALLOW_OK || status == one || status == other;
}

static void *own(void *context)
{
    (void)context;
    require(race.sim.cu.cuCtxSetCurrent(race.context) == CUDA_SUCCESS, "no context");
    for (unsigned i = 0;
         i < race.rounds || (atomic_load(&race.joined_count) < LEAST && i < race.rounds * MOST);
         i++) {
        atomic_store(&race.round, i);
        fallow_capture *capture = NULL;
        void *ptr = NULL;
        require(race.ops->capture_begin(race.pool, race.streams[0], &capture) == FALLOW_OK,
                "the owner's capture was not begun");
        atomic_store(&race.present, capture);
        if (i % 8 == 0) {
            sched_yield();
        }
        require(is_one_of(race.ops->capture_join(capture, race.streams[1]), FALLOW_INVALID_CAPTURE,
                          FALLOW_OK),
                "the owner's second stream");
        if (i % ALLOCATES == 0) {
            require(race.ops->alloc(race.pool, 5000, race.streams[0], &ptr) == FALLOW_OK,
                    "no block");
            require(race.ops->free(race.pool, ptr, race.streams[0]) == FALLOW_OK, "no free");
        }
        require(is_one_of(race.ops->capture_end(capture), FALLOW_INVALID_CAPTURE, FALLOW_OK),
                "the owner's end");
        require(is_one_of(race.ops->capture_release(capture), FALLOW_INVALID_CAPTURE, FALLOW_OK),
                "the owner's release");
    }
    atomic_store(&race.is_over, true);
    return NULL;
}

static void *interfere(void *argument)
{
    CUstream stream = *(CUstream *)argument;
    fallow_capture *remembered[REMEMBERED] = {NULL};
    require(race.sim.cu.cuCtxSetCurrent(race.context) == CUDA_SUCCESS, "no context");
    for (unsigned i = 0; !atomic_load(&race.is_over); i++) {
        fallow_capture *present = atomic_load(&race.present);
        fallow_capture *old = remembered[i % REMEMBERED];
        fallow_status status = race.ops->capture_join(present, stream);
        require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_BUSY), "a stranger's join");
        atomic_fetch_add(&race.joined_count, status == FALLOW_OK);
        if (i % 4 == 0) {
            status = race.ops->capture_end(present);
            require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_OK), "a stranger's end");
            atomic_fetch_add(&race.ended_count, status == FALLOW_OK);
        }
        if (old != NULL && old != present) {
            require(race.ops->capture_end(old) != FALLOW_BUSY, "an old handle's end");
            status = race.ops->capture_release(old);
            require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_BUSY),
                    "an old handle's release");
            atomic_fetch_add(&race.refused_count, status == FALLOW_INVALID_CAPTURE);
        }
        unsigned turn = atomic_load(&race.round) / ALLOCATES;
        if (turn < REMEMBERED && remembered[turn] == NULL) {
            remembered[turn] = present; /* kept for the whole race */
        }
    }
    return NULL;
}

static void *keep_one_open(void *argument)
{
    CUstream stream = *(CUstream *)argument;
    require(race.sim.cu.cuCtxSetCurrent(race.context) == CUDA_SUCCESS, "no context");
    for (unsigned i = 0; !atomic_load(&race.is_over); i++) {
        fallow_capture *capture = NULL;
        void *ptr = NULL;
        fallow_block info = {.struct_size = sizeof info};
        require(race.ops->capture_begin(race.pool, stream, &capture) == FALLOW_OK,
                "no other capture");
        require(race.ops->alloc(race.pool, 5000, stream, &ptr) == FALLOW_OK, "no captured block");
        require(race.ops->block_info(race.pool, ptr, &info) == FALLOW_OK, "an unknown block");
        require(info.state == FALLOW_BLOCK_CAPTURED, "a stranger ended the other capture");
        require(race.ops->free(race.pool, ptr, stream) == FALLOW_OK, "no captured free");
        while (!atomic_load(&race.is_over) && atomic_load(&race.round) / ALLOCATES <= i) {
            sched_yield();
        }
        require(race.ops->capture_end(capture) == FALLOW_OK, "the other capture had ended");
        require(race.ops->capture_release(capture) == FALLOW_OK, "the other capture was released");
    }
    return NULL;
}

static void run(void)
{
    pthread_t owner, keeper, strangers[STRANGERS];
    require(pthread_create(&owner, NULL, own, NULL) == 0 &&
                pthread_create(&keeper, NULL, keep_one_open, &race.streams[2]) == 0,
            "no thread");
    for (unsigned i = 0; i < STRANGERS; i++) {
        require(pthread_create(&strangers[i], NULL, interfere, &race.streams[3 + i]) == 0,
                "no thread");
    }
    pthread_join(owner, NULL);
    pthread_join(keeper, NULL);
    for (unsigned i = 0; i < STRANGERS; i++) {
        pthread_join(strangers[i], NULL);
    }
}

int main(int count, char **words)
{
    fallow_pool_config config = {.struct_size = sizeof config, .limit_bytes = 8ull << 30};
    fallow_stats stats = {.struct_size = sizeof stats};
    race.rounds = count == 3 && strcmp(words[1], "--rounds") == 0
                      ? (unsigned)strtoul(words[2], NULL, 0)
                      : 12000; /* the places of captures come round some times */
    race.ops = &flw_put_fallow;
    require(race.ops != NULL && flw_sim_open(&race.sim), "no bed");
    race.context = flw_sim_begin(&race.sim, NULL);
    require(race.ops->create(&race.sim.cu, &config, &race.pool) == FALLOW_OK, "no pool");
    for (unsigned i = 0; i < STREAMS; i++) {
        require(race.sim.cu.cuStreamCreate(&race.streams[i], CU_STREAM_NON_BLOCKING) ==
                    CUDA_SUCCESS,
                "no stream");
    }
    run();
    require(race.ops->validate(race.pool) == FALLOW_OK, "an invariant is broken");
    require(race.ops->get_stats(race.pool, &stats) == FALLOW_OK, "no statistics");
    require(stats.live_count == 0 && stats.captured_bytes == 0,
            "something is left allocated or captured");
    printf("%u captures or more: %u joins and %u ends of strangers, %u handles refused\n",
           race.rounds, atomic_load(&race.joined_count), atomic_load(&race.ended_count),
           atomic_load(&race.refused_count));
    require(atomic_load(&race.joined_count) >= LEAST && atomic_load(&race.refused_count) > 0,
            "the strangers met nothing");
    race.ops->destroy(race.pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&race.sim);
    require(ledger.given_bytes == 0 && ledger.event_count == 0, "the device has something left");
    flw_sim_close(&race.sim);
    return 0;
}
