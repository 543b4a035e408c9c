/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fixed scenarios of the mutation suite: planted faults that random programs meet too
 * rarely, or that no rule checker can judge. Does not: repeat what the random programs find. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool.h"
#include "support/sim.h"

#include "fallow/share.h"
#include "fallow/sleep.h"

int flw_mutant_scenarios(void);

#define FOUND   3
#define STREAMS 6
#define MIB     ((size_t)1 << 20)
#define SLOT    ((size_t)4096) /* several in one slab */
#define RUN     (3 * MIB)

static struct bed {
    struct flw_sim sim;
    const struct flw_driver *cu;
    CUcontext context;
    fallow_pool *pool;
    CUstream stream[STREAMS];
    CUgraph graph;
    fallow_capture *capture;
    pthread_t main;
    sem_t is_met, may_go_on;
    void *block;
    bool has_met;
    atomic_bool is_wrong;
} bed;

static void expect(bool holds, const char *sentence)
{
    if (!holds) {
        fprintf(stderr, "scenario: %s\n", sentence);
        atomic_store(&bed.is_wrong, true);
    }
}

/* The status of a pool's call, or the result of a driver's call, must be a success. */
#define GOOD(call) expect((int)(call) == 0, #call)

struct scenario {
    void (*run)(void);
    size_t limit_bytes;
    uint32_t handle_types;
    bool streams_may_die, has_contents;
};

/* Make a pool, and a world with a device that completes work only on step() or synchronisation. */
static void begin(const struct scenario *scenario)
{
    flw_sim_config world = flw_sim_config_default(8);
    fallow_pool_config config;
    struct flw_sim sim = bed.sim;
    world.check = 1;
    world.backed = scenario->has_contents;
    world.schedule = FLW_SIM_HELD;
    bed = (struct bed){.sim = sim, .main = pthread_self()};
    bed.cu = &bed.sim.cu;
    bed.context = flw_sim_begin(&bed.sim, &world);
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = scenario->limit_bytes;
    config.streams_may_die = scenario->streams_may_die;
    config.handle_types = scenario->handle_types;
    GOOD(fallow_pool_create(&config, &bed.pool));
    for (unsigned i = 0; i < STREAMS; i++) {
        GOOD(bed.cu->cuStreamCreate(&bed.stream[i], CU_STREAM_NON_BLOCKING));
    }
    GOOD(sem_init(&bed.is_met, 0, 0));
    GOOD(sem_init(&bed.may_go_on, 0, 0));
}

static void *allocate_flags(size_t bytes, uint32_t flags)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags;
    GOOD(fallow_alloc_request(bed.pool, &request, bed.stream[0], &ptr));
    return ptr;
}

static void touch(void *ptr, size_t bytes, unsigned stream)
{
    flw_sim_range range = {.address = (uintptr_t)ptr, .bytes = bytes, .is_write = 1};
    GOOD(bed.sim.touch(bed.stream[stream], &range, 1));
}

static void *use(size_t bytes, unsigned stream)
{
    void *ptr = NULL;
    GOOD(fallow_alloc(bed.pool, bytes, bed.stream[stream], &ptr));
    touch(ptr, bytes, stream);
    return ptr;
}

static void give(void *ptr, unsigned stream)
{
    GOOD(fallow_free(bed.pool, ptr, bed.stream[stream]));
}

static fallow_status alloc_no_wait(size_t bytes, unsigned stream)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    return fallow_alloc_request(bed.pool, &request, bed.stream[stream], &ptr);
}

static fallow_stats stats_of_pool(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    GOOD(fallow_pool_get_stats(bed.pool, &stats));
    return stats;
}

/* Release memory that the pool considers idle; the rule checker finds work that still uses it. */
static void trim_now(const char *sentence)
{
    fallow_status status = fallow_pool_trim(bed.pool, 0, 0, NULL);
    expect(status == FALLOW_OK || status == FALLOW_TIMEOUT, "a trim is refused");
    expect(flw_sim_print_violations(&bed.sim) == 0, sentence);
}

static void begin_capture(void)
{
    GOOD(fallow_capture_begin(bed.pool, bed.stream[0], &bed.capture));
}

static void capture_on_driver(void)
{
    GOOD(bed.cu->cuStreamBeginCapture_v2(bed.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void drop_captured(void)
{
    GOOD(bed.cu->cuStreamEndCapture(bed.stream[0], &bed.graph));
    GOOD(bed.cu->cuGraphDestroy(bed.graph));
}

static void end_capture(void)
{
    GOOD(fallow_capture_end(bed.capture));
    GOOD(fallow_capture_release(bed.capture));
}

/* Destroy stream 0 without a retire; the next stream receives the same handle. */
static void renew_stream(void)
{
    CUstream gone = bed.stream[0];
    GOOD(bed.cu->cuStreamDestroy_v2(gone));
    GOOD(bed.cu->cuStreamCreate(&bed.stream[0], CU_STREAM_NON_BLOCKING));
    expect(bed.stream[0] == gone, "the simulated driver does not reuse the handle");
}

/* Wait at most a second: a fault may keep the other side from posting. */
static void wait_for(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    (void)sem_timedwait(semaphore, &until);
}

static pthread_t start(void *(*work)(void *unused))
{
    pthread_t thread;
    GOOD(pthread_create(&thread, NULL, work, NULL));
    return thread;
}

/* ---- scenarios */

static void sized_frees_verify_the_size(void)
{
    give(use(SLOT, 0), 0);
    void *ptr = use(SLOT, 0);
    expect(fallow_free_sized(bed.pool, ptr, 100000, bed.stream[0]) == FALLOW_INVALID_ARGUMENT,
           "a sized free accepts a wrong size");
    GOOD(fallow_free_sized(bed.pool, ptr, SLOT, bed.stream[0]));
}

/* The work of one stream of six is unfinished: the slab that all six left must stay. */
static void slab_of_many_streams(void)
{
    for (unsigned slow = 0; slow < STREAMS; slow++) {
        void *ptr[STREAMS];
        for (unsigned i = 0; i < STREAMS; i++) {
            GOOD(fallow_alloc(bed.pool, SLOT, bed.stream[0], &ptr[i]));
        }
        for (unsigned i = 0; i < STREAMS; i++) {
            touch(ptr[i], SLOT, i);
            give(ptr[i], i);
        }
        trim_now("a slab is released under its streams' work");
        for (unsigned i = 0; i < STREAMS; i++) {
            if (i != slow) {
                GOOD(bed.cu->cuStreamSynchronize(bed.stream[i]));
            }
        }
        trim_now("a slab that many streams left is released before the last of them is done");
        GOOD(bed.cu->cuCtxSynchronize());
        trim_now("an idle slab cannot be released");
    }
}

/* A block with an announced use is freed and its own stream retired; then only the announced stream
 * is synchronised. */
static void block_of_a_retired_stream(void)
{
    CUevent event = NULL;
    void *ptr = use(RUN, 0);
    GOOD(bed.cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    GOOD(bed.cu->cuEventRecord(event, bed.stream[0]));
    GOOD(bed.cu->cuStreamWaitEvent(bed.stream[2], event, 0));
    GOOD(fallow_record_use(bed.pool, ptr, bed.stream[1]));
    give(ptr, 0);
    GOOD(fallow_stream_retire(bed.pool, bed.stream[0]));
    GOOD(bed.cu->cuStreamDestroy_v2(bed.stream[0]));
    trim_now("a held block is released at once");
    GOOD(bed.cu->cuStreamSynchronize(bed.stream[1]));
    trim_now("a held block is released before its own, retired stream is done");
}

/* The driver refuses the wait of a steal: the blocks stay with their owner. */
static void refused_wait(void)
{
    give(use(48 * MIB, 0), 0);
    (void)(bed.sim.fail)("cuStreamWaitEvent", 1, CUDA_ERROR_UNKNOWN, 0);
    give(use(48 * MIB, 1), 1);
    expect(bed.sim.call_count("cuStreamWaitEvent") > 0, "no stream was made to wait");
    (void)(bed.sim.fail)(NULL, 0, 0, 0);
}

static void use_until_no_fence_is_recorded(void)
{
    for (unsigned i = 0; i < 200; i++) { /* after a growth each free records a fence */
        give(use(40 * MIB, 0), 0);
    }
    (void)bed.sim.step(UINT64_MAX);
    give(use(40 * MIB, 0), 0);
}

/* All blocks freed by a stream are complete: after a query they are found without a wait. */
static void memory_without_a_fence(void)
{
    use_until_no_fence_is_recorded();
    expect(alloc_no_wait(40 * MIB, 1) == FALLOW_WOULD_WAIT, "memory of a busy stream is taken");
    (void)bed.sim.step(UINT64_MAX);
    expect(alloc_no_wait(40 * MIB, 1) == FALLOW_OK, "completed memory is not found");
}

/* The event that a stream owes is recorded only after its capture. */
static void fence_after_a_capture(void)
{
    use_until_no_fence_is_recorded();
    capture_on_driver();
    begin_capture();
    for (unsigned i = 0; i < 3; i++) {
        expect(alloc_no_wait(40 * MIB, 1) == FALLOW_WOULD_WAIT,
               "memory freed by a captured stream is taken");
    }
    drop_captured();
    GOOD(fallow_capture_end(bed.capture));
    uint64_t events = stats_of_pool().event_count;
    expect(alloc_no_wait(40 * MIB, 1) == FALLOW_WOULD_WAIT, "memory in use is taken");
    expect(stats_of_pool().event_count > events, "the stream's fence is never recorded");
    GOOD(fallow_capture_release(bed.capture));
}

static CUresult record_late(CUevent event, CUstream stream)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == bed.stream[0] && !pthread_equal(pthread_self(), bed.main)) {
        sem_post(&bed.is_met);
        wait_for(&bed.may_go_on); /* correct code waits for this record, so nobody posts */
        GOOD(bed.cu->cuStreamIsCapturing(stream, &capturing));
        expect(capturing == CU_STREAM_CAPTURE_STATUS_NONE, "a fence is part of the user's graph");
    }
    return bed.cu->cuEventRecord(event, stream);
}

static void *trim(void *unused)
{
    GOOD(bed.cu->cuCtxSetCurrent(bed.context));
    trim_now("memory in use is released");
    sem_post(&bed.is_met); /* if the trim recorded no event */
    return unused;
}

static void capture_beside_a_record(void)
{
    give(use(SLOT, 0), 0); /* the trim fences this cached block */
    flw_pool_of(bed.pool)->driver.cuEventRecord = record_late;
    pthread_t thread = start(trim);
    wait_for(&bed.is_met);
    begin_capture();
    capture_on_driver();
    sem_post(&bed.may_go_on);
    pthread_join(thread, NULL);
    drop_captured();
    end_capture();
}

static void *free_used(void *unused)
{
    GOOD(bed.cu->cuCtxSetCurrent(bed.context));
    wait_for(&bed.is_met);
    give(bed.block, 1);
    sem_post(&bed.may_go_on);
    return unused;
}

static CUresult record_and_meet(CUevent event, CUstream stream)
{
    CUresult result = bed.cu->cuEventRecord(event, stream);
    if (stream == bed.stream[0] && !bed.has_met) {
        bed.has_met = true;
        sem_post(&bed.is_met);
        wait_for(&bed.may_go_on);
    }
    return result;
}

/* A free after the fence of a retire. */
static void free_beside_a_retire(void)
{
    bed.block = use(RUN, 1);
    GOOD(fallow_record_use(bed.pool, bed.block, bed.stream[0]));
    flw_pool_of(bed.pool)->driver.cuEventRecord = record_and_meet;
    pthread_t thread = start(free_used);
    GOOD(fallow_stream_retire(bed.pool, bed.stream[0]));
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 2; i++) { /* the first trim records an event after the last free */
        (void)bed.sim.step(UINT64_MAX);
        trim_now("memory in use is released");
    }
    expect(stats_of_pool().reserved_bytes == 0, "memory waits forever for a retired stream");
}

static void *fill_cache(void *unused)
{
    GOOD(bed.cu->cuCtxSetCurrent(bed.context));
    give(use(SLOT, 0), 0);
    return unused;
}

static void cache_of_a_vanished_stream(void)
{
    give(use(SLOT, 0), 0);
    renew_stream();
    pthread_join(start(fill_cache), NULL);
    give(use(SLOT, 0), 0);
}

static void cache_after_a_capture(void)
{
    give(use(SLOT, 0), 0);
    begin_capture();
    end_capture();
    give(use(SLOT, 0), 0);
    renew_stream();
    give(use(SLOT, 0), 0);
}

static void exported_memory(void)
{
    fallow_share share;
    fallow_share_init(&share);
    char *shared = allocate_flags(RUN, FALLOW_REQUEST_EXPORT_FD);
    GOOD(fallow_export(bed.pool, shared, FALLOW_HANDLE_FD, &share));
    give(shared, 0);
    char *next = allocate_flags(RUN, 0);
    expect(next + RUN <= shared || shared + share.handle_bytes <= next,
           "memory that importers may have is allocated again");
    close(share.descriptor);
}

static void hits_asleep(void)
{
    void *kept = allocate_flags(SLOT, 0), *ptr = NULL;
    for (int i = 0; i < 2; i++) { /* the next one would be a hit */
        give(use(SLOT, 0), 0);
    }
    GOOD(bed.cu->cuCtxSynchronize());
    GOOD(fallow_pool_sleep(bed.pool, NULL));
    give(kept, 0);
    expect(fallow_alloc(bed.pool, SLOT, bed.stream[0], &ptr) == FALLOW_ASLEEP,
           "a sleeping pool allocates");
}

static void contents_over_a_sleep(void)
{
    fallow_sleep_request request;
    unsigned word = 0x5eed;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)allocate_flags(sizeof word, 0);
    GOOD(bed.cu->cuMemcpyHtoD_v2(at, &word, sizeof word));
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_SAVE_ALL;
    GOOD(fallow_pool_sleep(bed.pool, &request));
    GOOD(fallow_pool_wake(bed.pool));
    word = 0;
    GOOD(bed.cu->cuMemcpyDtoH_v2(&word, at, sizeof word));
    expect(word == 0x5eed, "contents that were to be saved are lost");
}

int flw_mutant_scenarios(void)
{
    static const struct scenario scenarios[] = {
        {.run = sized_frees_verify_the_size},
        {.run = slab_of_many_streams},
        {.run = block_of_a_retired_stream},
        {.run = refused_wait, .limit_bytes = 64 * MIB},
        {.run = memory_without_a_fence, .limit_bytes = 48 * MIB},
        {.run = fence_after_a_capture, .limit_bytes = 48 * MIB},
        {.run = free_beside_a_retire},
        {.run = cache_of_a_vanished_stream},
        {.run = cache_after_a_capture, .streams_may_die = true},
        {.run = capture_beside_a_record},
        {.run = exported_memory, .handle_types = FALLOW_HANDLE_FD},
        {.run = hits_asleep},
        {.run = contents_over_a_sleep, .has_contents = true}};
    if (!flw_sim_open(&bed.sim)) {
        return 2;
    }
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios && !bed.is_wrong; i++) {
        begin(&scenarios[i]);
        scenarios[i].run();
        (void)bed.sim.step(UINT64_MAX);
        expect(flw_sim_print_violations(&bed.sim) == 0, "a rule is broken");
        if (!bed.is_wrong) {
            fallow_pool_destroy(bed.pool);
        }
    }
    return bed.is_wrong ? FOUND : 0;
}
