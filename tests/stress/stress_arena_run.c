/* SPDX-License-Identifier: Apache-2.0 */
#include "stress_arena.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/sim.h"

#include "fallow/arena.h"
#include "fallow/sleep.h"

#define ARENAS       4
#define LAYOUTS      16
#define REGIONS_MOST 10
#define CREATED      3 /* of each thread */
#define STREAMS      4 /* created ones and the thread's default stream */
#define GRAPHS_MOST  3 /* of each thread */
#define THREADS_MOST 16

struct run {
    struct flw_sim sim;
    CUcontext context;
    fallow_pool *pool;
    fallow_arena *arenas[ARENAS];
    pthread_mutex_t launches[ARENAS]; /* held from a guard to the launch */
    fallow_layout *layouts[LAYOUTS];
    pthread_rwlock_t retiring; /* a trim may not meet the retirement of the last stream */
    pthread_rwlock_t sleeping; /* held shared by work, exclusively by a sleep */
    uint64_t ops;
    _Atomic uint64_t leases, refusals, captures, launch_count;
    atomic_bool is_broken;
};

struct graph {
    size_t arena;
    fallow_capture *capture;
    CUgraphExec executable;
};

struct worker {
    struct run *run;
    uint64_t random;
    CUstream streams[STREAMS];
    CUevent event;
    struct graph graphs[GRAPHS_MOST]; /* ready to launch */
    size_t graph_count;
    struct managed *kept; /* a tensor, deleted at random */
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (x ^ (x >> 31)) % below;
}

static void expect(struct run *run, bool holds, const char *sentence, int status)
{
    if (!holds && !atomic_exchange(&run->is_broken, true)) {
        fprintf(stderr, "failed: %s (%s)\n", sentence,
                fallow_status_message((fallow_status)status));
    }
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "failed: the test's own %s answered %d\n", call, (int)result);
        abort();
    }
}

/* ---- layouts */

/* Make layouts in which persistent regions have a few names and varying sizes, so
 * that they move. */
static void make_layouts(struct run *run, uint64_t *random)
{
    static const char *const kept[] = {"counter", "table", "arange"};
    char names[REGIONS_MOST][24];
    fallow_region regions[REGIONS_MOST];
    for (size_t l = 0; l < LAYOUTS; l++) {
        size_t count = 1 + draw(random, REGIONS_MOST - 3), k = count;
        for (size_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)draw(random, 6);
            snprintf(names[i], sizeof names[i], "r%zu", i);
            regions[i] = (fallow_region){
                .name = names[i],
                .size_bytes = 1 + draw(random, draw(random, 8) == 0 ? 3 << 20 : 40000),
                .align_bytes = (size_t)1 << draw(random, 16),
                .first_phase = first,
                .last_phase = first + (uint32_t)draw(random, 3)};
        }
        for (size_t i = 0; i < 3; i++) {
            if (draw(random, 3) == 0) {
                regions[k++] =
                    (fallow_region){.name = kept[i],
                                    .size_bytes = 512 * (1 + draw(random, 20)),
                                    .init = i == 0 ? FALLOW_INIT_COUNTER : FALLOW_INIT_ONCE,
                                    .init_step = i == 2,
                                    .flags = FALLOW_REGION_PERSISTENT};
            }
        }
        if (fallow_layout_create(regions, k, &run->layouts[l]) != FALLOW_OK) {
            expect(run, false, "a legal layout is refused", 0);
        }
    }
}

/* ---- a lease */

/* Every region, phase by phase, as a step would: written, then read. */
static void touch(struct worker *worker, const fallow_lease *lease, const fallow_layout *layout,
                  CUstream stream)
{
    struct run *run = worker->run;
    for (size_t i = 0; i < fallow_layout_region_count(layout); i++) {
        fallow_region region;
        if (fallow_layout_region(layout, i, &region, NULL) != FALLOW_OK) {
            abort();
        }
        void *address = fallow_lease_region_at(lease, i);
        expect(run, address != NULL && (uintptr_t)address % region.align_bytes == 0,
               "a region has no address, or one that is not aligned", 0);
        flw_sim_range ranges[2] = {{(uint64_t)(uintptr_t)address, region.size_bytes, 1, 0},
                                   {(uint64_t)(uintptr_t)address, region.size_bytes, 0, 0}};
        must((CUresult)run->sim.touch(stream, &ranges[0], 1), "touch");
        must((CUresult)run->sim.touch(stream, &ranges[1], 1), "touch");
    }
}

/* The beginning of DLPack's structure; only the deleter is used. */
struct managed {
    uint32_t version[2];
    void *context;
    void (*deleter)(struct managed *self);
};

static void drop_tensor(struct worker *worker)
{
    if (worker->kept != NULL) {
        worker->kept->deleter(worker->kept);
        worker->kept = NULL;
    }
}

static struct managed *export_one(struct worker *worker, fallow_lease *lease)
{
    struct DLManagedTensorVersioned *tensor = NULL;
    const int64_t words[] = {1};
    fallow_status status = fallow_lease_export(lease, 0, words, NULL, 1, 1, 8, 0, &tensor);
    expect(worker->run, status == FALLOW_OK, "a byte of a region is not exported", status);
    return (struct managed *)(void *)tensor;
}

static void end_lease(struct worker *worker, fallow_lease *lease, CUstream begun, CUstream end)
{
    struct run *run = worker->run;
    if (draw(&worker->random, 4) == 0) {
        drop_tensor(worker);
        worker->kept = export_one(worker, lease);
    }
    if (end != begun) {
        must(run->sim.cu.cuEventRecord(worker->event, begun), "cuEventRecord");
        must(run->sim.cu.cuStreamWaitEvent(end, worker->event, 0), "cuStreamWaitEvent");
    }
    fallow_status status = fallow_lease_end(lease, end);
    expect(run, status == FALLOW_OK, "an open lease does not end", status);
    expect(run, fallow_lease_region_at(lease, 0) == NULL, "a lease that has ended has regions", 0);
}

static bool is_expected(fallow_status status)
{
    return status == FALLOW_OK || status == FALLOW_BUSY || status == FALLOW_CAPTURING ||
           status == FALLOW_OUT_OF_MEMORY || status == FALLOW_OVER_BUDGET;
}

/* Begin a lease and use the regions. Returns NULL if the arena refuses. */
static fallow_lease *use_arena(struct worker *worker, size_t index, CUstream stream)
{
    struct run *run = worker->run;
    fallow_arena *arena = run->arenas[index];
    const fallow_layout *layout = run->layouts[draw(&worker->random, LAYOUTS)];
    fallow_lease *lease = NULL;
    pthread_mutex_lock(&run->launches[index]);
    uint32_t wait_ms = (uint32_t)draw(&worker->random, 2);
    fallow_status status = fallow_lease_begin_within(arena, layout, stream, wait_ms, &lease);
    pthread_mutex_unlock(&run->launches[index]);
    expect(run, is_expected(status), "a begin answers what it never should", status);
    if (status != FALLOW_OK) {
        atomic_fetch_add(&run->refusals, 1);
        return NULL;
    }
    atomic_fetch_add(&run->leases, 1);
    touch(worker, lease, layout, stream);
    return lease;
}

static void lease_once(struct worker *worker, size_t index, CUstream stream, bool is_captured)
{
    fallow_lease *lease = use_arena(worker, index, stream);
    if (lease == NULL) {
        return;
    }
    bool moves = !is_captured && draw(&worker->random, 4) == 0;
    end_lease(worker, lease, stream,
              moves ? worker->streams[draw(&worker->random, STREAMS)] : stream);
}

/* ---- graphs */

/* Launch a graph after the guard; retry while another thread has a lease or captures. */
static void launch(struct worker *worker, const struct graph *graph, CUstream stream)
{
    struct run *run = worker->run;
    fallow_status status = FALLOW_BUSY;
    while (status == FALLOW_BUSY || status == FALLOW_CAPTURING) {
        pthread_mutex_lock(&run->launches[graph->arena]);
        status = fallow_lease_guard(run->arenas[graph->arena], stream);
        if (status == FALLOW_OK) {
            must(run->sim.cu.cuGraphLaunch(graph->executable, stream), "cuGraphLaunch");
        }
        pthread_mutex_unlock(&run->launches[graph->arena]);
        expect(run, is_expected(status), "a guard answers what it never should", status);
        if (status != FALLOW_OK) {
            sched_yield();
        }
    }
    atomic_fetch_add(&run->launch_count, 1);
}

static void drop_graph(struct worker *worker, size_t at)
{
    struct run *run = worker->run;
    const struct graph graph = worker->graphs[at];
    worker->graphs[at] = worker->graphs[--worker->graph_count];
    must(run->sim.cu.cuGraphExecDestroy(graph.executable), "cuGraphExecDestroy");
    expect(run, fallow_capture_release(graph.capture) == FALLOW_OK, "a capture is not released", 0);
}

static void capture_once(struct worker *worker)
{
    struct run *run = worker->run;
    struct graph made = {.arena = (size_t)draw(&worker->random, ARENAS)};
    CUstream stream = worker->streams[draw(&worker->random, CREATED)];
    CUgraph graph = NULL;
    bool carries = draw(&worker->random, 3) == 0;
    fallow_lease *carried = carries ? use_arena(worker, made.arena, stream) : NULL;
    fallow_status status = fallow_capture_begin(run->pool, stream, &made.capture);
    expect(run, status == FALLOW_OK, "a capture does not begin", status);
    must(run->sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
         "cuStreamBeginCapture");
    if (carried != NULL) {
        status = fallow_lease_end(carried, FALLOW_LEASE_STREAM);
        expect(run, status == FALLOW_OK, "a lease does not end before a capture", status);
    }
    for (uint64_t i = draw(&worker->random, 3) + 1; i > 0; i--) {
        lease_once(worker, made.arena, stream, true);
    }
    must(run->sim.cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    expect(run, fallow_capture_end(made.capture) == FALLOW_OK, "a capture does not end", 0);
    must(run->sim.cu.cuGraphInstantiateWithFlags(&made.executable, graph, 0), "cuGraphInstantiate");
    must(run->sim.cu.cuGraphDestroy(graph), "cuGraphDestroy");
    if (worker->graph_count == GRAPHS_MOST) {
        drop_graph(worker, (size_t)draw(&worker->random, GRAPHS_MOST));
    }
    worker->graphs[worker->graph_count++] = made;
    atomic_fetch_add(&run->captures, 1);
}

/* Launch or destroy a graph of the thread; capture one if there is none. */
static void use_graph(struct worker *worker)
{
    size_t at = worker->graph_count > 0 ? (size_t)draw(&worker->random, worker->graph_count) : 0;
    if (worker->graph_count == 0) {
        capture_once(worker);
    } else if (draw(&worker->random, 6) == 0) {
        drop_graph(worker, at);
    } else {
        launch(worker, &worker->graphs[at], worker->streams[draw(&worker->random, STREAMS)]);
    }
}

/* ---- other operations on arenas and streams */

static void renew_stream(struct worker *worker)
{
    struct run *run = worker->run;
    CUstream *stream = &worker->streams[draw(&worker->random, CREATED)];
    pthread_rwlock_wrlock(&run->retiring);
    fallow_status status = fallow_stream_retire(run->pool, *stream);
    expect(run, status == FALLOW_OK, "a stream is not retired", status);
    must(run->sim.cu.cuStreamDestroy_v2(*stream), "cuStreamDestroy");
    must(run->sim.cu.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    pthread_rwlock_unlock(&run->retiring);
}

/* Grow two arenas by one call. */
static fallow_status reserve(struct worker *worker)
{
    struct run *run = worker->run;
    size_t first = draw(&worker->random, ARENAS - 1);
    pthread_mutex_lock(&run->launches[first]);
    pthread_mutex_lock(&run->launches[first + 1]);
    fallow_status status =
        fallow_arenas_reserve(&run->arenas[first], 2, run->layouts[draw(&worker->random, LAYOUTS)],
                              worker->streams[draw(&worker->random, STREAMS)]);
    pthread_mutex_unlock(&run->launches[first + 1]);
    pthread_mutex_unlock(&run->launches[first]);
    return status;
}

static void disturb(struct worker *worker)
{
    struct run *run = worker->run;
    fallow_arena *arena = run->arenas[draw(&worker->random, ARENAS)];
    fallow_status status = FALLOW_OK;
    switch (draw(&worker->random, 6)) {
    case 5:
        status = reserve(worker);
        break;
    case 0:
        status = fallow_arena_lock(arena);
        break;
    case 1:
    case 2:
        status = fallow_arena_unlock(arena);
        break;
    case 3:
        pthread_rwlock_rdlock(&run->retiring);
        status = fallow_arena_trim(arena);
        pthread_rwlock_unlock(&run->retiring);
        break;
    default:
        status = fallow_arena_lose_contents(arena);
    }
    expect(run, is_expected(status), "an arena answers what it never should", status);
}

/* Allocate blocks that an arena may have released. */
static void borrow(struct worker *worker)
{
    struct run *run = worker->run;
    CUstream stream = worker->streams[draw(&worker->random, STREAMS)];
    size_t bytes = 1 + draw(&worker->random, 100000);
    void *block = NULL;
    if (fallow_alloc(run->pool, bytes, stream, &block) == FALLOW_OK) {
        flw_sim_range range = {(uint64_t)(uintptr_t)block, bytes, 1, 0};
        must((CUresult)run->sim.touch(stream, &range, 1), "touch");
        expect(run, fallow_free(run->pool, block, stream) == FALLOW_OK, "a free is refused", 0);
    }
}

static void sleep_and_wake(struct run *run)
{
    pthread_rwlock_wrlock(&run->sleeping);
    must(run->sim.cu.cuCtxSynchronize(), "cuCtxSynchronize");
    fallow_status status = fallow_pool_sleep(run->pool, NULL);
    if (status != FALLOW_NOT_SUPPORTED) { /* as with segments */
        expect(run, status == FALLOW_OK, "a pool does not sleep", status);
        status = fallow_pool_wake(run->pool);
        expect(run, status == FALLOW_OK, "a pool does not wake", status);
    }
    pthread_rwlock_unlock(&run->sleeping);
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct run *run = worker->run;
    must(run->sim.cu.cuCtxSetCurrent(run->context), "cuCtxSetCurrent");
    must(run->sim.cu.cuEventCreate(&worker->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    worker->streams[CREATED] = CU_STREAM_PER_THREAD;
    for (size_t i = 0; i < CREATED; i++) {
        must(run->sim.cu.cuStreamCreate(&worker->streams[i], CU_STREAM_NON_BLOCKING),
             "cuStreamCreate");
    }
    for (uint64_t i = 0; i < run->ops && !run->is_broken; i++) {
        uint64_t what = draw(&worker->random, 100);
        if (draw(&worker->random, 300) == 0) {
            sleep_and_wake(run);
        }
        pthread_rwlock_rdlock(&run->sleeping);
        if (what < 2) {
            capture_once(worker);
        } else if (what < 5) {
            disturb(worker);
        } else if (what < 7) {
            renew_stream(worker);
        } else if (what < 15) {
            borrow(worker);
        } else if (what < 40) {
            use_graph(worker);
        } else {
            lease_once(worker, (size_t)draw(&worker->random, ARENAS),
                       worker->streams[draw(&worker->random, STREAMS)], false);
        }
        pthread_rwlock_unlock(&run->sleeping);
        if (i % 500 == 499) {
            expect(run, flw_sim_read_ledger(&run->sim).violation_count == 0, "a rule is broken", 0);
        }
    }
    pthread_rwlock_rdlock(&run->sleeping);
    while (worker->graph_count > 0) {
        drop_graph(worker, 0);
    }
    pthread_rwlock_unlock(&run->sleeping);
    drop_tensor(worker);
    must(run->sim.cu.cuEventDestroy_v2(worker->event), "cuEventDestroy");
    return NULL;
}

/* ---- the run */

static void make(struct run *run, uint64_t seed, uint64_t address_mib, fallow_page_source source,
                 uint32_t checks)
{
    flw_sim_config config = flw_sim_config_default(seed);
    uint64_t random = seed;
    config.check = 1;
    config.backed = checks != 0;
    config.schedule = FLW_SIM_RANDOM;
    config.reserve_all_bytes = address_mib << 20;
    run->context = flw_sim_begin(&run->sim, &config);
    fallow_pool_config pool_config;
    fallow_arena_config arena_config;
    fallow_pool_config_init(&pool_config);
    pool_config.driver = "sim";
    pool_config.page_source = source;
    if (fallow_pool_create(&pool_config, &run->pool) != FALLOW_OK) {
        abort();
    }
    make_layouts(run, &random);
    pthread_rwlock_init(&run->retiring, NULL);
    pthread_rwlock_init(&run->sleeping, NULL);
    for (size_t i = 0; i < ARENAS; i++) {
        pthread_mutex_init(&run->launches[i], NULL);
        fallow_arena_config_init(&arena_config);
        arena_config.asks_captures = i == ARENAS - 1;
        arena_config.checks = checks;
        if (fallow_arena_create(run->pool, &arena_config, &run->arenas[i]) != FALLOW_OK) {
            abort();
        }
    }
}

static void finish(struct run *run)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    for (size_t i = 0; i < ARENAS; i++) {
        fallow_arena_stats found = {.struct_size = sizeof found};
        expect(run,
               fallow_arena_get_stats(run->arenas[i], &found) == FALLOW_OK &&
                   found.damage_count == 0,
               "a red zone is damaged", 0);
        fallow_arena_destroy(run->arenas[i]);
    }
    for (size_t i = 0; i < LAYOUTS; i++) {
        fallow_layout_destroy(run->layouts[i]);
    }
    expect(run,
           fallow_pool_get_stats(run->pool, &stats) == FALLOW_OK && stats.live_count == 0 &&
               stats.live_bytes == 0 && stats.requested_bytes == 0,
           "arenas left blocks behind", 0);
    expect(run, fallow_pool_validate(run->pool) == FALLOW_OK, "an invariant is broken", 0);
    fallow_pool_destroy(run->pool);
    expect(run, flw_sim_read_ledger(&run->sim).given_bytes == 0, "memory is left behind", 0);
    run->is_broken = flw_sim_print_violations(&run->sim) != 0 || run->is_broken;
}

int stress_arena(int count, char **words)
{
    static struct run run;
    static struct worker workers[THREADS_MOST];
    pthread_t threads[THREADS_MOST];
    const char *given = getenv("FALLOW_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 1, ops = 20000, thread_count = 2;
    uint64_t address_mib = 0, source = FALLOW_PAGES_AUTOMATIC, checks = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 0);
        seed = strcmp(words[i], "--seed") == 0 ? value : seed;
        ops = strcmp(words[i], "--ops") == 0 ? value : ops;
        thread_count = strcmp(words[i], "--threads") == 0 ? value : thread_count;
        address_mib = strcmp(words[i], "--addresses") == 0 ? value : address_mib;
        source = strcmp(words[i], "--source") == 0 ? value : source;
        checks = strcmp(words[i], "--checks") == 0 ? value : checks;
    }
    if (thread_count < 1 || thread_count > THREADS_MOST || !flw_sim_open(&run.sim)) {
        fprintf(stderr,
                "usage: stress_arena [--seed N] [--ops N] [--threads 1..16] [--addresses MIB] "
                "[--source N] [--checks BITS]\n");
        return 2;
    }
    fprintf(stderr, "stress_arena: --seed 0x%llx\n", (unsigned long long)seed);
    run.ops = ops / thread_count;
    make(&run, seed, address_mib, (fallow_page_source)source, (uint32_t)checks);
    for (uint64_t i = 0; i < thread_count; i++) {
        workers[i] = (struct worker){.run = &run, .random = seed + 77 * i};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) {
            abort();
        }
    }
    for (uint64_t i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
    }
    if (!run.is_broken) {
        finish(&run);
    } else {
        (void)flw_sim_print_violations(&run.sim);
    }
    printf("%llu leases, %llu refused, %llu captures, %llu launches\n",
           (unsigned long long)run.leases, (unsigned long long)run.refusals,
           (unsigned long long)run.captures, (unsigned long long)run.launch_count);
    return run.is_broken ? 1 : 0;
}
