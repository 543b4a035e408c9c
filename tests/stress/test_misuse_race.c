/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the race that a table of states must win: two threads free one pointer at the same instant,
 * over and over. Exactly one is told OK, the other INVALID_POINTER, and nothing changes twice.
 * Sizes run over slabs and runs; the block was allocated by this thread or by another.
 *
 *   test_misuse_race [--rounds N]
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/pool_under_test.h"
#include "support/sim.h"

#define THREADS    2    /* the first one is the main thread */
#define MOST_SPINS 2000 /* before a yield: there may be fewer cores than threads */

static struct race {
    struct flw_sim sim;
    struct flw_put put;
    CUcontext context;
    CUstream streams[THREADS];
    _Atomic(void *) ptr;
    atomic_uint round, arrived, done; /* a spin barrier: nobody sleeps just before the free */
    atomic_uint ok_count, refused_count, other_count;
    uint64_t rounds;
} race;

static void wait_for(atomic_uint *counter, unsigned value)
{
    for (unsigned spins = 1; atomic_load_explicit(counter, memory_order_acquire) < value; spins++) {
        if (spins % MOST_SPINS == 0) {
            sched_yield();
        }
    }
}

static void free_with_the_others(unsigned self, unsigned round)
{
    void *ptr = atomic_load(&race.ptr);
    atomic_fetch_add(&race.arrived, 1);
    wait_for(&race.arrived, THREADS * round);
    fallow_status status = race.put.ops->free(race.put.pool, ptr, race.streams[self]);
    atomic_fetch_add(status == FALLOW_OK                ? &race.ok_count
                     : status == FALLOW_INVALID_POINTER ? &race.refused_count
                                                        : &race.other_count,
                     1);
    atomic_fetch_add(&race.done, 1);
}

static void *race_along(void *unused)
{
    (void)unused;
    if (race.sim.cu.cuCtxSetCurrent(race.context) != CUDA_SUCCESS) {
        abort();
    }
    for (unsigned round = 1; round <= race.rounds; round++) {
        wait_for(&race.round, round);
        free_with_the_others(1, round);
    }
    return NULL;
}

static bool run(uint64_t rounds)
{
    static const size_t sizes[] = {100, 4096, 60000, 1 << 20, 3 << 20};
    pthread_t thread;
    fallow_stats stats;
    race.rounds = rounds;
    if (pthread_create(&thread, NULL, race_along, NULL) != 0) {
        abort();
    }
    for (unsigned round = 1; round <= rounds; round++) {
        void *ptr = NULL;
        fallow_status status = race.put.ops->alloc(
            race.put.pool, sizes[round % (sizeof sizes / sizeof *sizes)], race.streams[0], &ptr);
        if (status != FALLOW_OK) {
            fprintf(stderr, "misuse_race: round %u: no block: %s\n", round,
                    fallow_status_name(status));
            exit(1);
        }
        atomic_store(&race.ptr, ptr);
        atomic_store(&race.round, round);
        free_with_the_others(0, round);
        wait_for(&race.done, THREADS * round);
        if (atomic_load(&race.ok_count) != round) {
            fprintf(stderr, "misuse_race: round %u: %u frees of one block succeeded, not 1\n",
                    round, atomic_load(&race.ok_count) - (round - 1));
            exit(1);
        }
    }
    pthread_join(thread, NULL);
    (void)!race.put.ops->get_stats(race.put.pool, &stats);
    printf("%s: %llu rounds, %u frees, %u refused, %u other answers\n", race.put.ops->name,
           (unsigned long long)rounds, atomic_load(&race.ok_count),
           atomic_load(&race.refused_count), atomic_load(&race.other_count));
    return atomic_load(&race.other_count) == 0 &&
           atomic_load(&race.refused_count) == (THREADS - 1) * rounds && stats.live_count == 0 &&
           stats.requested_bytes == 0 && stats.free_count == rounds &&
           stats.misuse_count == (THREADS - 1) * rounds;
}

int main(int count, char **words)
{
    uint64_t rounds = 20000;
    const struct flw_put_ops *ops = &flw_put_fallow;
    fallow_pool_config config = {.struct_size = sizeof config};
    if (count == 3 && strcmp(words[1], "--rounds") == 0) {
        rounds = strtoull(words[2], NULL, 0);
    }
    if (!flw_sim_open(&race.sim)) {
        return 1;
    }
    race.context = flw_sim_begin(&race.sim, NULL);
    race.put.ops = ops;
    if (ops->create(&race.sim.cu, &config, &race.put.pool) != FALLOW_OK) {
        return 1;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (race.sim.cu.cuStreamCreate(&race.streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            abort();
        }
    }
    bool good = run(rounds);
    if (ops->validate(race.put.pool) != FALLOW_OK) {
        fprintf(stderr, "misuse_race: an invariant is broken\n");
        good = false;
    }
    ops->destroy(race.put.pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&race.sim);
    good = good && ledger.given_bytes == 0 && ledger.event_count == 0;
    flw_sim_close(&race.sim);
    return good ? 0 : 1;
}
