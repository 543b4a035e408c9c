/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the scenarios of the mutation suite in which a stream is captured, retired or destroyed
 * while another thread uses it, or while threads have caches for it. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pool/pool.h"
#include "support/sim.h"

#include "fallow/fallow.h"

bool flw_mutant_streams(const struct flw_sim *sim);

#define MIB  ((size_t)1 << 20)
#define SLOT ((size_t)4096)

static struct bed {
    const struct flw_sim *sim;
    const struct flw_driver *cu;
    fallow_pool *pool;
    CUstream stream, other;
    CUcontext context;
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

static void must(bool is_so)
{
    if (!is_so) {
        fprintf(stderr, "scenario: the test's own call was refused\n");
        abort();
    }
}

/* Begin a world with a device that completes work only on step(). */
static void begin(const struct flw_sim *sim, size_t limit_bytes, bool streams_may_die)
{
    flw_sim_config world = flw_sim_config_default(8);
    fallow_pool_config config;
    world.check = 1;
    world.schedule = FLW_SIM_HELD;
    bed = (struct bed){.sim = sim, .cu = &sim->cu, .main = pthread_self()};
    bed.context = flw_sim_begin(sim, &world);
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = limit_bytes;
    config.streams_may_die = streams_may_die;
    must(fallow_pool_create(&config, &bed.pool) == FALLOW_OK);
    must(bed.cu->cuStreamCreate(&bed.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    must(bed.cu->cuStreamCreate(&bed.other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    must(sem_init(&bed.is_met, 0, 0) == 0 && sem_init(&bed.may_go_on, 0, 0) == 0);
}

static void end(void)
{
    (void)bed.sim->step(UINT64_MAX);
    expect(flw_sim_print_violations(bed.sim) == 0, "a rule is broken");
    if (!atomic_load(&bed.is_wrong)) {
        fallow_pool_destroy(bed.pool);
    }
}

static void *use(size_t bytes, CUstream stream)
{
    void *ptr = NULL;
    expect(fallow_alloc(bed.pool, bytes, stream, &ptr) == FALLOW_OK, "an allocation is refused");
    flw_sim_range range = {.address = (uintptr_t)ptr, .bytes = bytes, .is_write = 1};
    must((bed.sim->touch)(stream, &range, 1) == 0);
    return ptr;
}

static void give(void *ptr, CUstream stream)
{
    expect(fallow_free(bed.pool, ptr, stream) == FALLOW_OK, "a free is refused");
}

static void capture_on_driver(void)
{
    must(bed.cu->cuStreamBeginCapture_v2(bed.stream, CU_STREAM_CAPTURE_MODE_RELAXED) ==
         CUDA_SUCCESS);
}

static void drop_captured(void)
{
    CUgraph graph = NULL;
    must(bed.cu->cuStreamEndCapture(bed.stream, &graph) == CUDA_SUCCESS &&
         bed.cu->cuGraphDestroy(graph) == CUDA_SUCCESS);
}

/* Destroy the stream without a retire; the next stream receives the same handle. */
static void renew_stream(void)
{
    CUstream gone = bed.stream;
    must(bed.cu->cuStreamDestroy_v2(gone) == CUDA_SUCCESS);
    must(bed.cu->cuStreamCreate(&bed.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    must(bed.stream == gone);
}

/* ---- a capture begins while another thread records */

static CUresult record_late(CUevent event, CUstream stream)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == bed.stream && !pthread_equal(pthread_self(), bed.main)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1; /* correct code waits for this record, so nobody posts may_go_on */
        sem_post(&bed.is_met);
        (void)sem_timedwait(&bed.may_go_on, &until);
        must(bed.cu->cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS);
        expect(capturing == CU_STREAM_CAPTURE_STATUS_NONE, "a fence is part of the user's graph");
    }
    return bed.cu->cuEventRecord(event, stream);
}

static void *trim(void *unused)
{
    must(bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS);
    fallow_status status = fallow_pool_trim(bed.pool, 0, 0, NULL); /* or TIMEOUT */
    expect(status == FALLOW_OK || status == FALLOW_TIMEOUT, "a trim is refused");
    sem_post(&bed.is_met); /* in case the trim recorded no event */
    return unused;
}

static void check_capture_beside_record(const struct flw_sim *sim)
{
    pthread_t thread;
    fallow_capture *capture = NULL;
    begin(sim, 0, false);
    give(use(SLOT, bed.stream), bed.stream); /* the trim fences this cached block */
    flw_pool_of(bed.pool)->driver.cuEventRecord = record_late;
    must(pthread_create(&thread, NULL, trim, NULL) == 0);
    sem_wait(&bed.is_met);
    expect(fallow_capture_begin(bed.pool, bed.stream, &capture) == FALLOW_OK,
           "a capture is refused");
    capture_on_driver();
    sem_post(&bed.may_go_on);
    pthread_join(thread, NULL);
    drop_captured();
    expect(fallow_capture_end(capture) == FALLOW_OK, "a capture does not end");
    expect(fallow_capture_release(capture) == FALLOW_OK, "a capture is not released");
    end();
}

/* ---- an event not yet recorded on a stream when the capture begins */

static fallow_status look(void)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = 40 * MIB;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    return fallow_alloc_request(bed.pool, &request, bed.other, &ptr);
}

static uint64_t count_events(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    must(fallow_pool_get_stats(bed.pool, &stats) == FALLOW_OK);
    return stats.event_count;
}

static void check_debt_after_capture(const struct flw_sim *sim)
{
    fallow_capture *capture = NULL;
    begin(sim, 48 * MIB, false);
    for (unsigned i = 0; i < 200; i++) { /* right after a growth every free records a fence */
        give(use(40 * MIB, bed.stream), bed.stream);
    }
    (void)sim->step(UINT64_MAX);
    give(use(40 * MIB, bed.stream), bed.stream);
    capture_on_driver(); /* the announcement can no longer record the event that is due */
    expect(fallow_capture_begin(bed.pool, bed.stream, &capture) == FALLOW_OK,
           "a capture is refused");
    for (unsigned i = 0; i < 3; i++) {
        expect(look() == FALLOW_WOULD_WAIT, "what a captured stream has freed is given away");
    }
    drop_captured();
    expect(fallow_capture_end(capture) == FALLOW_OK, "a capture does not end");
    uint64_t events = count_events();
    expect(look() == FALLOW_WOULD_WAIT, "what is under way is given away");
    expect(count_events() > events, "nobody records on a stream that owed before its capture");
    end();
}

/* ---- a free after the fence of a retire */

static void *free_used(void *unused)
{
    must(bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS);
    sem_wait(&bed.is_met);
    give(bed.block, bed.other);
    sem_post(&bed.may_go_on);
    return unused;
}

static CUresult record_and_meet(CUevent event, CUstream stream)
{
    CUresult result = bed.cu->cuEventRecord(event, stream);
    if (stream == bed.stream && !bed.has_met) {
        bed.has_met = true;
        sem_post(&bed.is_met);
        sem_wait(&bed.may_go_on);
    }
    return result;
}

static void check_free_beside_retire(const struct flw_sim *sim)
{
    pthread_t thread;
    fallow_stats stats;
    begin(sim, 0, false);
    bed.block = use(3 * MIB, bed.other);
    expect(fallow_record_use(bed.pool, bed.block, bed.stream) == FALLOW_OK, "a use is refused");
    flw_pool_of(bed.pool)->driver.cuEventRecord = record_and_meet;
    must(pthread_create(&thread, NULL, free_used, NULL) == 0);
    expect(fallow_stream_retire(bed.pool, bed.stream) == FALLOW_OK, "a retire is refused");
    pthread_join(thread, NULL);
    must(bed.has_met);
    for (unsigned i = 0; i < 2; i++) { /* the first trim records an event after the last free */
        (void)sim->step(UINT64_MAX);
        fallow_status status = fallow_pool_trim(bed.pool, 0, 0, NULL);
        expect(status == FALLOW_OK || status == FALLOW_TIMEOUT, "a trim is refused");
    }
    fallow_stats_init(&stats);
    must(fallow_pool_get_stats(bed.pool, &stats) == FALLOW_OK);
    expect(stats.reserved_bytes == 0, "memory waits for a stream that was retired, for ever");
    end();
}

/* ---- caches of a stream that vanished */

static void *meet(void *unused)
{
    must(bed.cu->cuCtxSetCurrent(bed.context) == CUDA_SUCCESS);
    give(use(SLOT, bed.stream), bed.stream);
    return unused;
}

static void check_cache_of_vanished_stream(const struct flw_sim *sim)
{
    pthread_t thread;
    begin(sim, 0, false);
    give(use(SLOT, bed.stream), bed.stream);
    renew_stream();
    must(pthread_create(&thread, NULL, meet, NULL) == 0);
    pthread_join(thread, NULL);
    give(use(SLOT, bed.stream), bed.stream);
    end();
}

static void check_cache_after_capture(const struct flw_sim *sim)
{
    fallow_capture *capture = NULL;
    begin(sim, 0, true);
    give(use(SLOT, bed.stream), bed.stream);
    expect(fallow_capture_begin(bed.pool, bed.stream, &capture) == FALLOW_OK,
           "a capture is refused");
    expect(fallow_capture_end(capture) == FALLOW_OK, "a capture does not end");
    expect(fallow_capture_release(capture) == FALLOW_OK, "a capture is not released");
    give(use(SLOT, bed.stream), bed.stream);
    renew_stream();
    give(use(SLOT, bed.stream), bed.stream);
    end();
}

bool flw_mutant_streams(const struct flw_sim *sim)
{
    void (*const checks[])(const struct flw_sim *sim) = {
        check_debt_after_capture, check_free_beside_retire, check_cache_of_vanished_stream,
        check_cache_after_capture, check_capture_beside_record};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        checks[i](sim);
        if (atomic_load(&bed.is_wrong)) {
            return true;
        }
    }
    return false;
}
