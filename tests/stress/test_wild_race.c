/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the race of a look-up against the tables that it looks in: one thread frees pointers that
 * are no block's (NULL, odd addresses near what was allocated last, anything) while another makes
 * slabs and runs, and dissolves them. Each is refused, NULL is accepted, nothing changes.
 * ThreadSanitizer sees a read that was not meant to meet a write; so the maker allocates by
 * request, past the cache: the lock would order the two threads.
 *
 *   test_wild_race [--seed N] [--pools N] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "fallow/fallow.h"
#include "support/sim.h"
#include "support/trim.h"

#define BLOCKS     600
#define MOST_BYTES (1u << 21)
#define CYCLES     3

static struct race {
    struct flw_sim sim;
    fallow_pool *pool;
    CUcontext context;
    CUstream maker, intruder;
    _Atomic(unsigned char *) last; /* relaxed: it must not order anything */
    atomic_bool is_over;
    uint64_t seed;
    uint64_t wild_count;
    void *blocks[BLOCKS];
} race;

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 24;
}

static void fail(const char *what, fallow_status status)
{
    fprintf(stderr, "wild_race: %s: %s; again: --seed %llu\n", what, fallow_status_name(status),
            (unsigned long long)race.seed);
    exit(1);
}

static void expect(const char *what, fallow_status status, fallow_status expected)
{
    if (status != expected) {
        fail(what, status);
    }
}

/* Odd, or of no pool: never a block. */
static void *wild_pointer(uint64_t *seed)
{
    uint64_t r = draw(seed);
    unsigned char *near = atomic_load_explicit(&race.last, memory_order_relaxed);
    return near + (r % 2 == 0 ? r % (64 * FLW_KIB) : r % (64 * FLW_MIB)) / 2 * 2 + 1;
}

static void *intrude(void *unused)
{
    (void)unused;
    void *own = NULL;
    uint64_t seed = race.seed ^ 1;
    if (race.sim.cu.cuCtxSetCurrent(race.context) != CUDA_SUCCESS) {
        abort();
    }
    /* A cache of its own, so that the frees below take the short way. */
    expect("the intruder's block", fallow_alloc(race.pool, 100, race.intruder, &own), FALLOW_OK);
    expect("its return", fallow_free(race.pool, own, race.intruder), FALLOW_OK);
    while (!atomic_load_explicit(&race.is_over, memory_order_relaxed)) {
        void *wild = wild_pointer(&seed);
        expect("a free of NULL", fallow_free(race.pool, NULL, race.intruder), FALLOW_OK);
        expect("a wild free", fallow_free(race.pool, wild, race.intruder), FALLOW_INVALID_POINTER);
        expect("a wild sized free", fallow_free_sized(race.pool, wild, 512, race.intruder),
               FALLOW_INVALID_POINTER);
        race.wild_count += 2;
    }
    return NULL;
}

/* Many slabs and a few runs; then their memory goes back to the device. */
static void make_and_dissolve(uint64_t *seed)
{
    fallow_request request;
    fallow_request_init(&request);
    for (unsigned i = 0; i < BLOCKS; i++) {
        request.size_bytes = 1 + draw(seed) % (MOST_BYTES >> draw(seed) % 14);
        expect("a block", fallow_alloc_request(race.pool, &request, race.maker, &race.blocks[i]),
               FALLOW_OK);
        atomic_store_explicit(&race.last, race.blocks[i], memory_order_relaxed);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        expect("a return", fallow_free(race.pool, race.blocks[i], race.maker), FALLOW_OK);
    }
    expect("a trim", flw_test_trim(race.pool, 0), FALLOW_OK);
}

static void race_once(uint64_t *seed)
{
    pthread_t thread;
    fallow_stats stats;
    race.wild_count = 0;
    atomic_store(&race.is_over, false);
    if (pthread_create(&thread, NULL, intrude, NULL) != 0) {
        abort();
    }
    for (unsigned i = 0; i < CYCLES; i++) {
        make_and_dissolve(seed);
    }
    atomic_store_explicit(&race.is_over, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    fallow_stats_init(&stats);
    expect("statistics", fallow_pool_get_stats(race.pool, &stats), FALLOW_OK);
    if (stats.live_count != 0 || stats.requested_bytes != 0 ||
        stats.misuse_count != race.wild_count) {
        fprintf(stderr, "wild_race: %llu wild frees, %llu counted, %llu blocks left\n",
                (unsigned long long)race.wild_count, (unsigned long long)stats.misuse_count,
                (unsigned long long)stats.live_count);
        fail("the account is wrong", FALLOW_OK);
    }
    expect("an invariant", fallow_pool_validate(race.pool), FALLOW_OK);
}

static void run_pool(uint64_t *seed)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    if (fallow_pool_create(&config, &race.pool) != FALLOW_OK ||
        race.sim.cu.cuStreamCreate(&race.maker, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        race.sim.cu.cuStreamCreate(&race.intruder, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        abort();
    }
    atomic_store(&race.last, NULL);
    race_once(seed);
    fallow_pool_destroy(race.pool);
}

int main(int count, char **words)
{
    uint64_t pools = 10;
    race.seed = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--seed") == 0) {
            race.seed = strtoull(words[i + 1], NULL, 0);
        } else if (strcmp(words[i], "--pools") == 0) {
            pools = strtoull(words[i + 1], NULL, 0);
        }
    }
    if (!flw_sim_open(&race.sim)) {
        return 1;
    }
    race.context = flw_sim_begin(&race.sim, NULL);
    uint64_t seed = race.seed, wild = 0;
    for (uint64_t i = 0; i < pools; i++) {
        run_pool(&seed);
        wild += race.wild_count;
    }
    printf("seed %llu: %llu pools, %llu wild frees, all refused\n", (unsigned long long)race.seed,
           (unsigned long long)pools, (unsigned long long)wild);
    flw_sim_close(&race.sim);
    return 0;
}
