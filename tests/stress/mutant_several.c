/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the scenarios of the mutation suite in which one stream steals memory of others: after
 * device waits, one of which each planted fault omits, and without a wait, if complete. */
#include <stdio.h>
#include <stdlib.h>

#include "support/sim.h"

#include "fallow/fallow.h"

bool flw_mutant_several(const struct flw_sim *sim);

#define STREAMS 4
#define MIB     ((size_t)1 << 20)
#define LIMIT   (64 * MIB)

struct bed {
    const struct flw_sim *sim;
    const struct flw_driver *cu;
    fallow_pool *pool;
    CUstream stream[STREAMS];
    CUevent event;
    bool is_wrong;
};

static void expect(struct bed *bed, bool holds, const char *sentence)
{
    if (!holds) {
        fprintf(stderr, "scenario: %s\n", sentence);
        bed->is_wrong = true;
    }
}

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "scenario: the test's own driver call answered %d\n", (int)result);
        abort();
    }
}

/* A pool that cannot grow beyond 64 MiB, on a device that does nothing unasked. */
static void plough(struct bed *bed, const struct flw_sim *sim)
{
    flw_sim_config world = flw_sim_config_default(6);
    fallow_pool_config config;
    world.check = 1;
    world.schedule = FLW_SIM_HELD;
    (void)flw_sim_begin(sim, &world);
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = LIMIT;
    *bed = (struct bed){.sim = sim, .cu = &sim->cu};
    if (fallow_pool_create(&config, &bed->pool) != FALLOW_OK) {
        abort();
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        must(bed->cu->cuStreamCreate(&bed->stream[i], CU_STREAM_NON_BLOCKING));
    }
    must(bed->cu->cuEventCreate(&bed->event, CU_EVENT_DISABLE_TIMING));
}

/* True: nothing was wrong. */
static bool harvest(struct bed *bed)
{
    expect(bed, fallow_pool_validate(bed->pool) == FALLOW_OK, "an invariant is broken");
    (void)bed->sim->step(UINT64_MAX);
    bed->is_wrong |= flw_sim_print_violations(bed->sim) != 0;
    if (!bed->is_wrong) {
        fallow_pool_destroy(bed->pool);
    }
    return !bed->is_wrong;
}

static void *allocate(struct bed *bed, size_t bytes, unsigned stream)
{
    void *ptr = NULL;
    expect(bed, fallow_alloc(bed->pool, bytes, bed->stream[stream], &ptr) == FALLOW_OK,
           "what others have freed is refused");
    return ptr;
}

static void touch(struct bed *bed, void *ptr, size_t bytes, unsigned stream, int is_write)
{
    flw_sim_range range = {.address = (uintptr_t)ptr, .bytes = bytes, .is_write = is_write};
    if (ptr != NULL) {
        must((CUresult)bed->sim->touch(bed->stream[stream], &range, 1));
    }
}

static void release(struct bed *bed, void *ptr, unsigned stream)
{
    expect(bed, fallow_free(bed->pool, ptr, bed->stream[stream]) == FALLOW_OK, "a free is refused");
}

static void *use(struct bed *bed, size_t bytes, unsigned stream)
{
    void *ptr = allocate(bed, bytes, stream);
    touch(bed, ptr, bytes, stream, 1);
    return ptr;
}

static fallow_stats stats_of(struct bed *bed)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    must((CUresult)fallow_pool_get_stats(bed->pool, &stats));
    return stats;
}

/* The driver refuses the wait of a steal: the blocks stay with their owner. */
static bool check_refused_wait(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    release(&bed, use(&bed, 48 * MIB, 0), 0);
    (void)(sim->fail)("cuStreamWaitEvent", 1, CUDA_ERROR_UNKNOWN, 0);
    release(&bed, use(&bed, 48 * MIB, 1), 1);
    expect(&bed, sim->call_count("cuStreamWaitEvent") > 0, "no stream was made to wait");
    (void)(sim->fail)(NULL, 0, 0, 0);
    return harvest(&bed);
}

/* A block still read by a second stream and by the first, which has freed it; a third writes. */
static bool check_used_block(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    void *ptr = use(&bed, 48 * MIB, 0);
    must(bed.cu->cuEventRecord(bed.event, bed.stream[0]));
    must(bed.cu->cuStreamWaitEvent(bed.stream[1], bed.event, 0));
    touch(&bed, ptr, 48 * MIB, 1, 0);
    touch(&bed, ptr, 48 * MIB, 0, 0);
    expect(&bed, fallow_record_use(bed.pool, ptr, bed.stream[1]) == FALLOW_OK, "a use is refused");
    release(&bed, ptr, 0);
    void *again = use(&bed, 48 * MIB, 2);
    expect(&bed, again == ptr, "a block that is used is not taken behind waits");
    release(&bed, again, 2);
    return harvest(&bed);
}

/* Only together are the free blocks of two streams large enough. */
static bool check_neighbours(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    void *one = use(&bed, 24 * MIB, 0), *other = use(&bed, 24 * MIB, 1);
    release(&bed, one, 0);
    release(&bed, other, 1);
    uint64_t waits = stats_of(&bed).wait_count;
    release(&bed, use(&bed, 44 * MIB, 2), 2);
    expect(&bed, stats_of(&bed).wait_count == waits, "neighbours are waited for by the host");
    return harvest(&bed);
}

/* The first stream has finished; the second, with an earlier fence, has not. */
static bool check_unfinished_beside_finished(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    void *slow = use(&bed, 20 * MIB, 0), *quick = use(&bed, 20 * MIB, 1);
    void *rest = use(&bed, 20 * MIB, 2);
    release(&bed, slow, 0);
    release(&bed, quick, 1);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 20 * MIB;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    void *ptr = NULL;
    for (unsigned i = 0; i < 4; i++) { /* has a fence recorded on each */
        expect(&bed,
               fallow_alloc_request(bed.pool, &request, bed.stream[3], &ptr) == FALLOW_WOULD_WAIT,
               "memory is taken from streams that are at work");
    }
    must(bed.cu->cuStreamSynchronize(bed.stream[1]));
    unsigned looks = 0;
    fallow_status status = FALLOW_WOULD_WAIT;
    for (; looks < 4 && status == FALLOW_WOULD_WAIT; looks++) {
        status = fallow_alloc_request(bed.pool, &request, bed.stream[3], &ptr);
    }
    expect(&bed, status == FALLOW_OK && ptr == quick, "what is finished is hidden");
    touch(&bed, ptr, 20 * MIB, 3, 1);
    status = fallow_alloc_request(bed.pool, &request, bed.stream[3], &ptr);
    expect(&bed, status == FALLOW_WOULD_WAIT, "what is not finished is taken");
    release(&bed, rest, 2);
    return harvest(&bed);
}

/* All blocks freed by a stream are complete: after a query they are found without a wait. */
static bool check_owed_fence(const struct flw_sim *sim)
{
    struct bed bed;
    plough(&bed, sim);
    for (unsigned i = 0; i < 200; i++) { /* after a growth the first are fenced by their frees */
        release(&bed, use(&bed, 48 * MIB, 0), 0);
    }
    (void)sim->step(UINT64_MAX);
    release(&bed, use(&bed, 48 * MIB, 0), 0);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 48 * MIB;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    void *ptr = NULL;
    expect(&bed, fallow_alloc_request(bed.pool, &request, bed.stream[1], &ptr) == FALLOW_WOULD_WAIT,
           "memory is taken from a stream that is at work");
    (void)sim->step(UINT64_MAX);
    expect(&bed, fallow_alloc_request(bed.pool, &request, bed.stream[1], &ptr) == FALLOW_OK,
           "what a stream has finished with is not found");
    touch(&bed, ptr, 48 * MIB, 1, 1);
    return harvest(&bed);
}

/* Small blocks in a thread's cache for a stream, freed after the last complete fence. */
static bool check_ceded_cache(const struct flw_sim *sim)
{
    enum {
        BLOCKS = 14336, /* of 4 KiB: 56 MiB */
        LATE = 64
    };
    static void *ptr[BLOCKS];
    struct bed bed;
    plough(&bed, sim);
    unsigned count = 0;
    while (count < BLOCKS &&
           fallow_alloc(bed.pool, 4096, bed.stream[0], &ptr[count]) == FALLOW_OK) {
        count++;
    }
    for (unsigned i = LATE; i < count; i++) {
        release(&bed, ptr[i], 0);
    }
    release(&bed, use(&bed, 4096, 1), 1);
    expect(&bed, fallow_pool_trim(bed.pool, SIZE_MAX, 0, NULL) == FALLOW_OK, "a trim is refused");
    for (unsigned i = 0; i < LATE; i++) {
        touch(&bed, ptr[i], 4096, 0, 1);
        release(&bed, ptr[i], 0);
    }
    for (unsigned i = 0; i < BLOCKS + LATE && !bed.is_wrong; i++) {
        void *block = NULL;
        if (fallow_alloc(bed.pool, 4096, bed.stream[1], &block) != FALLOW_OK) {
            break;
        }
        touch(&bed, block, 4096, 1, 1);
        bed.is_wrong |= i % 64 == 0 && flw_sim_print_violations(sim) != 0;
    }
    return harvest(&bed);
}

bool flw_mutant_several(const struct flw_sim *sim)
{
    return !(check_refused_wait(sim) && check_used_block(sim) && check_neighbours(sim) &&
             check_unfinished_beside_finished(sim) && check_owed_fence(sim) &&
             check_ceded_cache(sim));
}
