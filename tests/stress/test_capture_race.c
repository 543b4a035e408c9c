/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the race of allocations and frees on a stream with begin, end and release of captures on
 * it by another thread. No two live blocks share a byte, the pool stays valid, and nothing remains
 * at the end.
 *
 *   test_capture_race [--rounds N] [--seed N] */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/overlap.h"
#include "support/pool_under_test.h"
#include "support/sim.h"

#define ALLOCATORS 2
#define HELD       16
#define LEAST      100  /* allocations that have met a capture before the race may end */
#define MOST       1000 /* most rounds, as a multiple, on a busy machine */

static struct race {
    struct flw_sim sim;
    CUcontext context;
    CUstream streams[ALLOCATORS];
    struct flw_overlap *live;
    const struct flw_put_ops *ops;
    void *pool;
    uint64_t rounds, seed;
    atomic_bool is_over;
    atomic_uint_least64_t captured_count, allocated_count;
} race;

struct allocator {
    pthread_t thread;
    unsigned index;
    uint64_t random;
    struct {
        void *ptr;
        size_t bytes;
    } held[HELD];
};

static void require(bool is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "capture_race: %s (--seed %llu)\n", what, (unsigned long long)race.seed);
        exit(1);
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void free_block(struct allocator *allocator, unsigned i)
{
    if (allocator->held[i].ptr != NULL) {
        flw_overlap_release(race.live, (uint64_t)(uintptr_t)allocator->held[i].ptr,
                            allocator->held[i].bytes);
        require(race.ops->free(race.pool, allocator->held[i].ptr, race.streams[allocator->index]) ==
                    FALLOW_OK,
                "a free was refused");
        allocator->held[i].ptr = NULL;
    }
}

static void *allocate(void *context)
{
    static const size_t sizes[] = {300, 5000, 60000, 900000, 3 << 20};
    struct allocator *allocator = context;
    fallow_block info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    require(race.sim.cu.cuCtxSetCurrent(race.context) == CUDA_SUCCESS, "no context");
    while (!atomic_load(&race.is_over)) {
        uint64_t random = next_random(&allocator->random);
        unsigned i = random % HELD;
        size_t bytes = sizes[(random >> 8) % (sizeof sizes / sizeof *sizes)];
        void *ptr = NULL;
        free_block(allocator, i);
        require(race.ops->alloc(race.pool, bytes, race.streams[allocator->index], &ptr) ==
                    FALLOW_OK,
                "no block");
        require(flw_overlap_claim(race.live, (uint64_t)(uintptr_t)ptr, bytes), "an overlap");
        require(race.ops->block_info(race.pool, ptr, &info) == FALLOW_OK, "a block is not known");
        require(info.requested_bytes == bytes, "a block is another's");
        atomic_fetch_add(&race.captured_count, info.state == FALLOW_BLOCK_CAPTURED);
        atomic_fetch_add(&race.allocated_count, 1);
        allocator->held[i].ptr = ptr;
        allocator->held[i].bytes = bytes;
    }
    for (unsigned i = 0; i < HELD; i++) {
        free_block(allocator, i);
    }
    return NULL;
}

static void pause_a_while(uint64_t random)
{
    for (uint64_t i = 0; i < random % 8; i++) {
        sched_yield();
    }
}

static void run(void)
{
    struct allocator lenders[ALLOCATORS];
    uint64_t random = race.seed * 2 + 1;
    memset(lenders, 0, sizeof lenders);
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        lenders[i].index = i;
        lenders[i].random = random + 77 * (i + 1);
        require(pthread_create(&lenders[i].thread, NULL, allocate, &lenders[i]) == 0, "no thread");
    }
    for (uint64_t round = 0; round < race.rounds || (atomic_load(&race.captured_count) < LEAST &&
                                                     round < race.rounds * MOST);
         round++) {
        fallow_capture *capture = NULL;
        require(race.ops->capture_begin(race.pool, race.streams[0], &capture) == FALLOW_OK,
                "no capture");
        require(race.ops->capture_join(capture, race.streams[1]) == FALLOW_OK, "not joined");
        pause_a_while(next_random(&random));
        require(race.ops->capture_end(capture) == FALLOW_OK, "not ended");
        require(race.ops->capture_release(capture) == FALLOW_OK, "not released");
        pause_a_while(next_random(&random));
    }
    atomic_store(&race.is_over, true);
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        pthread_join(lenders[i].thread, NULL);
    }
}

int main(int count, char **words)
{
    fallow_pool_config config;
    fallow_stats stats;
    race.rounds = 400;
    race.seed = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        *(strcmp(words[i], "--seed") == 0 ? &race.seed : &race.rounds) =
            strtoull(words[i + 1], NULL, 0);
    }
    memset(&config, 0, sizeof config);
    memset(&stats, 0, sizeof stats);
    config.struct_size = sizeof config;
    config.limit_bytes = 8ull << 30; /* a capture can take nothing that a stream still orders */
    stats.struct_size = sizeof stats;
    race.ops = &flw_put_fallow;
    race.live = flw_overlap_create();
    require(race.ops != NULL && race.live != NULL && flw_sim_open(&race.sim), "no bed");
    race.context = flw_sim_begin(&race.sim, NULL);
    require(race.ops->create(&race.sim.cu, &config, &race.pool) == FALLOW_OK, "no pool");
    for (unsigned i = 0; i < ALLOCATORS; i++) {
        require(race.sim.cu.cuStreamCreate(&race.streams[i], CU_STREAM_NON_BLOCKING) ==
                    CUDA_SUCCESS,
                "no stream");
    }
    run();
    require(race.ops->validate(race.pool) == FALLOW_OK, "an invariant is broken");
    require(race.ops->get_stats(race.pool, &stats) == FALLOW_OK, "no statistics");
    require(stats.live_count == 0 && stats.captured_bytes == 0,
            "something is left allocated or captured");
    printf("%llu captures or more under %llu allocations, %llu of them captured\n",
           (unsigned long long)race.rounds, (unsigned long long)atomic_load(&race.allocated_count),
           (unsigned long long)atomic_load(&race.captured_count));
    require(atomic_load(&race.captured_count) >= LEAST, "too few allocations met a capture");
    race.ops->destroy(race.pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&race.sim);
    require(ledger.given_bytes == 0 && ledger.event_count == 0, "the device has something left");
    flw_overlap_destroy(race.live);
    flw_sim_close(&race.sim);
    return 0;
}
