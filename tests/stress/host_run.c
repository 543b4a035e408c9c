/* SPDX-License-Identifier: Apache-2.0 */
#include "stress/host_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fallow/host.h"

#define STREAMS      4
#define MOST_THREADS 8
#define HELD         24
#define LIMIT_BYTES  ((size_t)96 << 20)

struct held {
    unsigned char *block;
    size_t bytes;
    unsigned char mark;
};

struct worker {
    struct shared *shared;
    uint64_t random;
    unsigned number;
    CUcontext context;
    struct held held[HELD];
    uint64_t corrupt_count, refused_count;
};

struct shared {
    struct flw_sim *sim;
    const struct flw_host_run *run;
    fallow_host *host;
    CUstream streams[STREAMS];
};

static uint64_t next_random(struct worker *worker)
{
    uint64_t x = worker->random += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static void expect(struct worker *worker, fallow_status status, const char *call)
{
    if (status != FALLOW_OK) {
        char text[256];
        fallow_host_last_error(worker->shared->host, text, sizeof text);
        fprintf(stderr, "%s: %s: %s\n", call, fallow_status_name(status), text);
        worker->refused_count++;
    }
}

static size_t any_size(struct worker *worker)
{
    uint64_t r = next_random(worker);
    unsigned kind = r % 16;
    r >>= 8;
    return kind < 9 ? 1 + r % 8192 : kind < 15 ? 1 + r % (512 << 10) : 1 + r % (10 << 20);
}

/* The CPU writes a new block; the marks at the ends identify the owner. */
static void allocate(struct worker *worker, struct held *held)
{
    void *block = NULL;
    size_t bytes = any_size(worker);
    fallow_status status = fallow_host_alloc(worker->shared->host, bytes, &block);
    if (status == FALLOW_OUT_OF_PINNED_MEMORY) {
        return; /* the other threads hold all blocks */
    }
    expect(worker, status, "alloc");
    if (status == FALLOW_OK) {
        *held = (struct held){.block = block, .bytes = bytes};
        held->mark = (unsigned char)(next_random(worker) | 1);
        held->block[0] = held->block[bytes - 1] = held->mark;
    }
}

/* Copy to or from the block: on the simulated device, access the bytes. */
static void use(struct worker *worker, const struct held *held, CUstream stream, bool is_write)
{
    flw_sim_range range = {
        .address = (uintptr_t)held->block, .bytes = held->bytes, .is_write = is_write};
    if (worker->shared->sim->touch(stream, &range, 1) != CUDA_SUCCESS) {
        worker->refused_count++;
    }
}

static void free_block(struct worker *worker, struct held *held)
{
    struct shared *shared = worker->shared;
    uint64_t r = next_random(worker);
    CUstream stream = shared->streams[r % STREAMS], second = shared->streams[r / 8 % STREAMS];
    worker->corrupt_count +=
        held->block[0] != held->mark || held->block[held->bytes - 1] != held->mark;
    if (r / 64 % 8 == 0) {
        expect(worker, fallow_host_free_idle(shared->host, held->block), "free_idle");
    } else if (r / 64 % 8 < 3) { /* read by two streams */
        use(worker, held, stream, false);
        use(worker, held, second, false);
        expect(worker, fallow_host_record_use(shared->host, held->block, second), "record_use");
        expect(worker, fallow_host_free(shared->host, held->block, stream), "free");
    } else if (r / 64 % 8 == 3) { /* on a stream that only this thread can name */
        use(worker, held, CU_STREAM_PER_THREAD, true);
        expect(worker, fallow_host_free(shared->host, held->block, CU_STREAM_PER_THREAD), "free");
    } else {
        use(worker, held, stream, true);
        expect(worker, fallow_host_free(shared->host, held->block, stream), "free");
    }
    *held = (struct held){0};
}

static void upkeep(struct worker *worker)
{
    fallow_host *host = worker->shared->host;
    uint64_t r = next_random(worker) % 8;
    if (r == 0) {
        fallow_status status = fallow_host_trim(host, (size_t)8 << 20, 0, NULL);
        expect(worker, status, "trim");
    } else if (r == 1) {
        expect(worker, fallow_host_validate(host), "validate");
    } else {
        expect(worker, fallow_host_poll(host), "poll");
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    if (worker->shared->sim->cu.cuCtxSetCurrent(worker->context) != CUDA_SUCCESS) {
        worker->refused_count++;
        return NULL;
    }
    for (unsigned i = 0; i < worker->shared->run->op_count; i++) {
        struct held *held = &worker->held[next_random(worker) % HELD];
        if (next_random(worker) % 64 == 0) {
            upkeep(worker);
        } else if (held->block == NULL) {
            allocate(worker, held);
        } else {
            free_block(worker, held);
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (worker->held[i].block != NULL) {
            free_block(worker, &worker->held[i]);
        }
    }
    return NULL;
}

static void run_threads(struct shared *shared, struct worker *workers)
{
    pthread_t threads[MOST_THREADS];
    for (unsigned i = 1; i < shared->run->thread_count; i++) {
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) {
            abort();
        }
    }
    (void)work(&workers[0]);
    for (unsigned i = 1; i < shared->run->thread_count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

struct flw_host_result flw_host_run(struct flw_sim *sim, const struct flw_host_run *run)
{
    struct flw_host_result result = {0};
    struct shared shared = {.sim = sim, .run = run};
    struct worker *workers = calloc(MOST_THREADS, sizeof *workers);
    flw_sim_config world = flw_sim_config_default(run->seed);
    world.check = 1;
    CUcontext context = flw_sim_begin(sim, &world);
    fallow_pool *pool = NULL;
    fallow_pool_config device = {.struct_size = sizeof device, .driver = "sim"};
    fallow_host_config config = {
        .struct_size = sizeof config, .limit_bytes = LIMIT_BYTES, .wait_ms = 20};
    if (workers == NULL || fallow_pool_create(&device, &pool) != FALLOW_OK ||
        fallow_host_create(pool, &config, &shared.host) != FALLOW_OK) {
        abort();
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        if (sim->cu.cuStreamCreate(&shared.streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            abort();
        }
    }
    for (unsigned i = 0; i < run->thread_count; i++) {
        workers[i] = (struct worker){
            .shared = &shared, .number = i, .random = run->seed + i * 7919, .context = context};
    }
    run_threads(&shared, workers);
    fallow_host_stats stats;
    fallow_host_stats_init(&stats);
    fallow_status status = fallow_host_trim(shared.host, 0, UINT64_MAX, NULL);
    expect(&workers[0], status, "the last trim");
    expect(&workers[0], fallow_host_validate(shared.host), "the last validate");
    expect(&workers[0], fallow_host_get_stats(shared.host, &stats), "stats");
    result.refused_count += stats.reserved_bytes != 0 || stats.deferred_bytes != 0 ||
                            stats.peak_reserved_bytes > LIMIT_BYTES;
    fallow_host_destroy(shared.host);
    flw_sim_ledger ledger = flw_sim_read_ledger(sim);
    result.refused_count += ledger.pinned_bytes != 0;
    result.violation_count = ledger.violation_count;
    for (unsigned i = 0; i < run->thread_count; i++) {
        result.corrupt_count += workers[i].corrupt_count;
        result.refused_count += workers[i].refused_count;
    }
    result.block_count = stats.alloc_count;
    result.event_count = stats.event_count;
    fallow_pool_destroy(pool);
    free(workers);
    return result;
}
