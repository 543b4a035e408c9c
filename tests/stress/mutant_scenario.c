/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fixed scenarios of the mutation suite: cases that random programs cannot judge (is
 * this free a double one?) or meet too rarely (five streams in one slab, a stream retired while
 * the blocks are held, a cache drained while its owner works). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/sim.h"
#include "support/trim.h"

#include "fallow/fallow.h"

int flw_mutant_scenarios(void);
bool flw_mutant_epochs(const struct flw_sim *sim);  /* mutant_epoch.c */
bool flw_mutant_several(const struct flw_sim *sim); /* mutant_several.c */
bool flw_mutant_sleeps(const struct flw_sim *sim);  /* mutant_sleep.c */
bool flw_mutant_streams(const struct flw_sim *sim); /* mutant_streams.c */

#define FOUND 3

static atomic_bool is_wrong;

static void expect(bool holds, const char *sentence)
{
    if (!holds) {
        fprintf(stderr, "scenario: %s\n", sentence);
        is_wrong = true;
    }
}

static fallow_pool *make_pool(size_t limit_bytes)
{
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = limit_bytes;
    if (fallow_pool_create(&config, &pool) != FALLOW_OK) {
        abort();
    }
    return pool;
}

static void *allocate(fallow_pool *pool, size_t bytes, fallow_stream stream)
{
    void *ptr = NULL;
    expect(fallow_alloc(pool, bytes, stream, &ptr) == FALLOW_OK && ptr != NULL,
           "a small allocation is refused");
    return ptr;
}

static void free_twice(fallow_pool *pool, size_t bytes, fallow_stream stream)
{
    void *warm = allocate(pool, bytes, stream), *ptr = allocate(pool, bytes, stream);
    expect(fallow_free(pool, warm, stream) == FALLOW_OK, "a free is refused");
    expect(fallow_free(pool, ptr, stream) == FALLOW_OK, "a free is refused");
    expect(fallow_free(pool, ptr, stream) == FALLOW_INVALID_POINTER, "a double free is accepted");
    expect(fallow_free(pool, (char *)warm + 1, stream) == FALLOW_INVALID_POINTER,
           "an interior free of a free block is accepted");
}

static void check_sizes(fallow_pool *pool, fallow_stream stream)
{
    void *warm = allocate(pool, 4096, stream);
    expect(fallow_free(pool, warm, stream) == FALLOW_OK, "a free is refused");
    void *ptr = allocate(pool, 4096, stream);
    expect(fallow_free_sized(pool, ptr, 100000, stream) == FALLOW_INVALID_ARGUMENT,
           "a sized free accepts a wrong size");
    expect(fallow_free_sized(pool, ptr, 4096, stream) == FALLOW_OK, "a sized free is refused");
    for (size_t bytes = 1; bytes <= 70000; bytes += bytes < 5000 ? 1 : 251) {
        fallow_block block;
        fallow_block_init(&block);
        ptr = allocate(pool, bytes, stream);
        expect(fallow_block_info(pool, ptr, &block) == FALLOW_OK && block.usable_bytes >= bytes,
               "a block is smaller than what was asked for");
        expect(fallow_free(pool, ptr, stream) == FALLOW_OK, "a free is refused");
        if (is_wrong) {
            return;
        }
    }
}

/* The ledger never exceeds the limit, and after a trim equals the pool's statistics. */
static void check_limit(const struct flw_sim *sim, fallow_stream stream)
{
    const size_t limit = 33u << 20; /* no multiple of a handle */
    fallow_pool *pool = make_pool(limit);
    void *ptrs[64];
    size_t count = 0;
    while (count < 64 && fallow_alloc(pool, 3u << 20, stream, &ptrs[count]) == FALLOW_OK) {
        count++;
    }
    expect(count < 64, "a limit is no limit");
    expect(flw_sim_read_ledger(sim).given_bytes <= limit, "more is given than the limit");
    while (count > 0) {
        expect(fallow_free(pool, ptrs[--count], stream) == FALLOW_OK, "a free is refused");
    }
    fallow_stats stats;
    fallow_stats_init(&stats);
    expect(flw_test_trim(pool, 0) == FALLOW_OK, "a trim is refused");
    expect(fallow_pool_get_stats(pool, &stats) == FALLOW_OK &&
               stats.reserved_bytes == flw_sim_read_ledger(sim).given_bytes,
           "the statistics disagree with the ledger");
    fallow_pool_destroy(pool);
}

/* ---- orders that a random program meets seldom; the device is held, nothing completes unasked */

#define STREAMS 6
#define SLOT    4096u /* several in one slab */
#define RUN     (3u << 20)

struct bed {
    const struct flw_sim *sim;
    const struct flw_driver *cu;
    fallow_pool *pool;
    CUstream stream[STREAMS];
    CUevent event;
};

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "scenario: the test's own driver call answered %d\n", (int)result);
        abort();
    }
}

static void plough(struct bed *bed, const struct flw_sim *sim)
{
    flw_sim_config config = flw_sim_config_default(5);
    config.check = 1;
    config.schedule = FLW_SIM_HELD;
    (void)flw_sim_begin(sim, &config);
    *bed = (struct bed){.sim = sim, .cu = &sim->cu, .pool = make_pool(0)};
    for (int i = 0; i < STREAMS; i++) {
        must(bed->cu->cuStreamCreate(&bed->stream[i], CU_STREAM_NON_BLOCKING));
    }
    must(bed->cu->cuEventCreate(&bed->event, CU_EVENT_DISABLE_TIMING));
}

static void touch(struct bed *bed, CUstream stream, void *ptr, size_t bytes)
{
    flw_sim_range range = {.address = (uintptr_t)ptr, .bytes = bytes, .is_write = 1};
    must((CUresult)bed->sim->touch(stream, &range, 1));
}

static void order(struct bed *bed, CUstream from, CUstream to)
{
    must(bed->cu->cuEventRecord(bed->event, from));
    must(bed->cu->cuStreamWaitEvent(to, bed->event, 0));
}

/* Release memory that the pool considers idle; the rule checker finds work that still uses it. */
static void trim_now(struct bed *bed, const char *sentence)
{
    expect(fallow_pool_trim(bed->pool, 0, 0, NULL) == FALLOW_OK, "a trim is refused");
    expect(flw_sim_print_violations(bed->sim) == 0, sentence);
}

/* The work of one stream of six is not done: the slab that all six left must stay. */
static void check_slab_of_many_streams(const struct flw_sim *sim)
{
    for (int slow = 0; slow < STREAMS && !is_wrong; slow++) {
        struct bed bed;
        void *ptr[STREAMS];
        plough(&bed, sim);
        for (int i = 0; i < STREAMS; i++) {
            ptr[i] = allocate(bed.pool, SLOT, bed.stream[0]);
        }
        for (int i = 0; i < STREAMS; i++) {
            touch(&bed, bed.stream[i], ptr[i], SLOT);
            expect(fallow_free(bed.pool, ptr[i], bed.stream[i]) == FALLOW_OK, "a free is refused");
        }
        trim_now(&bed, "a slab is taken apart under its streams' work");
        for (int i = 0; i < STREAMS; i++) {
            if (i != slow) {
                must(bed.cu->cuStreamSynchronize(bed.stream[i]));
            }
        }
        trim_now(&bed, "a slab that many streams left goes before the last of them is done");
        if (!is_wrong) {
            fallow_pool_destroy(bed.pool);
        }
    }
}

/* A block freed with an announced use: its own stream is retired; only the announced stream is
 * done. */
static void check_held_block_of_retired_stream(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    void *ptr = allocate(bed.pool, RUN, bed.stream[0]);
    touch(&bed, bed.stream[0], ptr, RUN);
    order(&bed, bed.stream[0], bed.stream[2]); /* used elsewhere too, before both */
    expect(fallow_record_use(bed.pool, ptr, bed.stream[1]) == FALLOW_OK, "a use is refused");
    expect(fallow_free(bed.pool, ptr, bed.stream[0]) == FALLOW_OK, "a free is refused");
    expect(fallow_stream_retire(bed.pool, bed.stream[0]) == FALLOW_OK, "a retire is refused");
    must(bed.cu->cuStreamDestroy_v2(bed.stream[0]));
    trim_now(&bed, "a held block goes at once");
    must(bed.cu->cuStreamSynchronize(bed.stream[1]));
    trim_now(&bed, "a held block goes before its own, retired stream is done");
    must(bed.cu->cuCtxSynchronize());
    if (!is_wrong) {
        fallow_pool_destroy(bed.pool);
    }
}

/* A block in the stream's cache must not be used in a capture: the graph would use memory that the
 * stream continues to allocate. */
static void check_capture_beside_cache(const struct flw_sim *sim)
{
    struct bed bed;
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    plough(&bed, sim);
    CUstream stream = bed.stream[0];
    void *cached = allocate(bed.pool, 4096, stream);
    expect(fallow_free(bed.pool, cached, stream) == FALLOW_OK, "a free is refused");
    must(bed.cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect(fallow_capture_begin(bed.pool, stream, &capture) == FALLOW_OK, "a begin is refused");
    void *captured = allocate(bed.pool, 4096, stream);
    expect(captured != cached, "a capture is given a block of the stream's");
    expect(fallow_free(bed.pool, captured, stream) == FALLOW_OK, "a free is refused");
    must(bed.cu->cuStreamEndCapture(stream, &graph));
    expect(fallow_capture_end(capture) == FALLOW_OK, "an end is refused");
    expect(fallow_capture_release(capture) == FALLOW_OK, "a release is refused");
    if (!is_wrong) {
        fallow_pool_destroy(bed.pool);
    }
}

/* A capture with the last launch ordered before the stream's end; the stream is retired and the
 * handle reused; then the capture is released. */
static void check_release_after_retire(const struct flw_sim *sim)
{
    struct bed bed;
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    plough(&bed, sim);
    CUstream captured = bed.stream[0], again = NULL;
    must(bed.cu->cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect(fallow_capture_begin(bed.pool, captured, &capture) == FALLOW_OK, "a begin is refused");
    void *ptr = allocate(bed.pool, RUN, captured);
    touch(&bed, captured, ptr, RUN);
    expect(fallow_free(bed.pool, ptr, captured) == FALLOW_OK, "a free is refused");
    must(bed.cu->cuStreamEndCapture(captured, &graph));
    expect(fallow_capture_end(capture) == FALLOW_OK, "an end is refused");
    must(bed.cu->cuGraphInstantiateWithFlags(&executable, graph, 0));
    must(bed.cu->cuGraphLaunch(executable, bed.stream[1]));
    order(&bed, bed.stream[1], captured);
    expect(fallow_stream_retire(bed.pool, captured) == FALLOW_OK, "a retire is refused");
    must(bed.cu->cuStreamDestroy_v2(captured));
    must(bed.cu->cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    expect(again == captured, "the simulated driver does not hand the handle out again");
    expect(fallow_capture_release(capture) == FALLOW_OK, "a release is refused");
    trim_now(&bed, "released memory goes at once");
    must(bed.cu->cuStreamSynchronize(again)); /* idle except for an event of the pool */
    trim_now(&bed, "released memory goes with a fence on a stranger's stream");
    must(bed.cu->cuCtxSynchronize());
    must(bed.cu->cuGraphExecDestroy(executable));
    must(bed.cu->cuGraphDestroy(graph));
    if (!is_wrong) {
        fallow_pool_destroy(bed.pool);
    }
}

struct drainer {
    fallow_pool *pool;
    atomic_bool stops;
};

static void *drain_on(void *argument)
{
    struct drainer *drainer = argument;
    while (!atomic_load(&drainer->stops)) {
        expect(fallow_pool_trim(drainer->pool, SIZE_MAX, 0, NULL) == FALLOW_OK,
               "a trim is refused");
    }
    return NULL;
}

#define HELD        8
#define DRAIN_TURNS 300000

/* One thread allocates and frees through the cache while another drains it: no block is allocated
 * twice. */
static void check_drain_beside_owner(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    struct drainer drainer = {.pool = bed.pool};
    CUstream stream = bed.stream[0];
    void *held[HELD] = {NULL};
    pthread_t thread;
    if (pthread_create(&thread, NULL, drain_on, &drainer) != 0) {
        abort();
    }
    for (unsigned turn = 0; turn < DRAIN_TURNS && !is_wrong; turn++) {
        for (unsigned i = 0; i < HELD; i++) {
            held[i] = allocate(bed.pool, i % 4 == 3 ? RUN : 4096, stream);
            for (unsigned k = 0; k < i; k++) {
                expect(held[k] != held[i], "a block is allocated twice");
            }
        }
        for (unsigned i = 0; i < HELD; i++) {
            expect(fallow_free(bed.pool, held[i], stream) == FALLOW_OK, "a free is refused");
        }
    }
    atomic_store(&drainer.stops, true);
    pthread_join(thread, NULL);
    if (!is_wrong) {
        fallow_pool_destroy(bed.pool);
    }
}

int flw_mutant_scenarios(void)
{
    struct flw_sim sim;
    CUstream stream = NULL;
    if (!flw_sim_open(&sim)) {
        return 2;
    }
    flw_sim_config config = flw_sim_config_default(5);
    config.check = 1;
    (void)flw_sim_begin(&sim, &config);
    must(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_limit(&sim, stream);
    fallow_pool *pool = make_pool(0);
    free_twice(pool, 4096, stream);
    free_twice(pool, RUN, stream);
    if (!is_wrong) {
        check_sizes(pool, stream);
    }
    if (!is_wrong) {
        fallow_pool_destroy(pool);
    }
    is_wrong |= flw_sim_print_violations(&sim) != 0;
    void (*const checks[])(const struct flw_sim *sim) = {
        check_slab_of_many_streams, check_held_block_of_retired_stream, check_capture_beside_cache,
        check_release_after_retire, check_drain_beside_owner};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !is_wrong; i++) {
        checks[i](&sim);
    }
    is_wrong |= !is_wrong && flw_mutant_several(&sim);
    is_wrong |= !is_wrong && flw_mutant_epochs(&sim);
    is_wrong |= !is_wrong && flw_mutant_sleeps(&sim);
    is_wrong |= !is_wrong && flw_mutant_streams(&sim);
    return is_wrong ? FOUND : 0;
}
