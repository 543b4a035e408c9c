/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the random programs of the quiescence run. Threads allocate, free each other's blocks,
 * queue work, launch graphs in several contexts, capture, synchronise, end streams and a context,
 * while the device performs a few operations at a time, when a thread advances it.
 *
 * For the device, an allocation and the model's check of it are one step: nothing completes in
 * between, except by other threads' waits, which only complete more. */
#include "quiescence.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quiescence_model.h"

#include "fallow/extend.h"

#define KIB          ((uint64_t)1 << 10)
#define MIB          ((uint64_t)1 << 20)
#define BLOCKS       2048
#define THREADS_MAX  8
#define CONTEXTS_MAX 3
#define STREAMS_EACH 4 /* of a context */
#define BROKEN       3

struct block {
    uint64_t base, bytes;
    unsigned context;
};

static struct {
    struct flw_sim sim;
    struct model model;
    pthread_rwlock_t device; /* read: the device is stopped; write: it may advance */
    CUcontext contexts[CONTEXTS_MAX];
    fallow_pool *pools[CONTEXTS_MAX]; /* NULL: through the driver */
    unsigned context_count, thread_count;
    uint64_t ops, seed;
    bool through_pool;
    struct block blocks[BLOCKS]; /* model.lock */
    unsigned block_count;
    CUgraphExec graph;
    CUgraph graph_source;
    atomic_bool is_broken;
    _Atomic uint64_t refused, launches, captures, contexts_ended;
} run = {.device = PTHREAD_RWLOCK_INITIALIZER};

struct worker {
    pthread_t thread;
    uint64_t state;
    unsigned index, context;
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    uint64_t x = worker->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (x ^ (x >> 31)) % below;
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "quiescence: %s answered %d\n", call, (int)result);
        run.is_broken = true;
    }
}
#define MUST(call) must(run.sim.cu.call, #call)

/* ---- the two ways */

static bool take_block(struct worker *worker, uint64_t bytes, uint64_t *out)
{
    CUdeviceptr pointer = 0;
    void *block = NULL;
    if (run.through_pool) {
        fallow_status status = fallow_alloc(run.pools[worker->context], bytes, NULL, &block);
        *out = (uint64_t)(uintptr_t)block;
        return status == FALLOW_OK;
    }
    CUresult result = run.sim.cu.cuMemAlloc_v2(&pointer, bytes);
    *out = pointer;
    return result == CUDA_SUCCESS;
}

static void free_block(const struct block *block)
{
    bool is_done = run.through_pool ? fallow_free(run.pools[block->context],
                                                  (void *)(uintptr_t)block->base, NULL) == FALLOW_OK
                                    : run.sim.cu.cuMemFree_v2(block->base) == CUDA_SUCCESS;
    if (!is_done) {
        fprintf(stderr, "quiescence: a free of 0x%llx is refused\n",
                (unsigned long long)block->base);
        run.is_broken = true;
    }
}

/* ---- operations */

static uint64_t pick_size(struct worker *worker)
{
    uint64_t kind = draw(worker, 100);
    return kind < 60   ? 1 + draw(worker, 4 * KIB)
           : kind < 88 ? 1 + draw(worker, 300 * KIB)
           : kind < 98 ? MIB + draw(worker, 3 * MIB)
                       : MIB + draw(worker, 15 * MIB);
}

static void allocate(struct worker *worker)
{
    uint64_t bytes = pick_size(worker), base = 0;
    pthread_rwlock_rdlock(&run.device);
    bool is_live = take_block(worker, bytes, &base);
    pthread_mutex_lock(&run.model.lock);
    if (!is_live) {
        run.refused++;
    } else if (!model_alloc(&run.model, base, bytes)) {
        run.is_broken = true;
    } else {
        run.blocks[run.block_count++] =
            (struct block){.base = base, .bytes = bytes, .context = worker->context};
    }
    pthread_mutex_unlock(&run.model.lock);
    pthread_rwlock_unlock(&run.device);
}

static void free_one(struct worker *worker)
{
    struct block block = {0};
    pthread_mutex_lock(&run.model.lock);
    if (run.block_count > 0) {
        unsigned at = (unsigned)draw(worker, run.block_count);
        block = run.blocks[at];
        run.blocks[at] = run.blocks[--run.block_count];
        model_free(&run.model, block.base, block.bytes);
    }
    pthread_mutex_unlock(&run.model.lock);
    if (block.base != 0) {
        free_block(&block);
    }
}

/* There must be room for all threads. */
static void allocate_or_free(struct worker *worker)
{
    pthread_mutex_lock(&run.model.lock);
    unsigned count = run.block_count;
    pthread_mutex_unlock(&run.model.lock);
    bool must_free = count + run.thread_count >= BLOCKS;
    if (must_free || draw(worker, 1000) < count * 1000u / (BLOCKS / 2)) {
        free_one(worker);
    } else {
        allocate(worker);
    }
}

static void work(struct worker *worker)
{
    pthread_mutex_lock(&run.model.lock);
    unsigned stream = (unsigned)draw(worker, run.model.stream_count);
    bool is_graph = draw(worker, 8) == 0 && stream < STREAMS_EACH;
    if (model_give(&run.model, stream, is_graph ? run.graph : NULL)) {
        run.launches += is_graph;
    }
    pthread_mutex_unlock(&run.model.lock);
}

static void let_the_device_work(struct worker *worker)
{
    pthread_rwlock_wrlock(&run.device);
    (void)run.sim.step(1 + draw(worker, 5));
    pthread_rwlock_unlock(&run.device);
}

static void enter_context(struct worker *worker)
{
    worker->context = (unsigned)draw(worker, run.context_count);
    MUST(cuCtxSetCurrent(run.contexts[worker->context]));
}

static void synchronize(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    (void)run.sim.cu.cuCtxSynchronize(); /* refused, and deadly, beside a capture: see capture() */
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
}

/* Only one at a time, and no synchronisation beside it, which would end the capture with a real
 * driver too. */
static pthread_rwlock_t capturing = PTHREAD_RWLOCK_INITIALIZER;

static void capture(struct worker *worker)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    if (pthread_rwlock_trywrlock(&capturing) != 0) {
        return;
    }
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (run.through_pool) {
        fallow_context_capture_begin();
    }
    MUST(cuStreamBeginCapture_v2(stream, draw(worker, 2) == 0 ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                              : CU_STREAM_CAPTURE_MODE_RELAXED));
    for (uint64_t n = draw(worker, 60); n > 0; n--) {
        if (draw(worker, 4) == 0) {
            must((CUresult)run.sim.touch(stream, NULL, 0), "work in a capture");
        }
        allocate_or_free(worker);
    }
    MUST(cuStreamEndCapture(stream, &graph));
    if (run.through_pool) {
        fallow_context_capture_end();
    }
    run.captures++;
    if (graph != NULL) {
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuStreamDestroy_v2(stream));
    pthread_rwlock_unlock(&capturing);
}

/* The old stream's work continues; the handle may be reused at once. */
static void renew_stream(struct worker *worker)
{
    CUcontext popped;
    pthread_mutex_lock(&run.model.lock);
    struct model_stream *stream = &run.model.streams[draw(worker, run.model.stream_count)];
    MUST(cuCtxPushCurrent_v2(stream->context));
    MUST(cuStreamDestroy_v2(stream->stream));
    MUST(cuStreamCreate(&stream->stream, draw(worker, 2) == 0 ? CU_STREAM_NON_BLOCKING : 0));
    MUST(cuCtxPopCurrent_v2(&popped));
    pthread_mutex_unlock(&run.model.lock);
}

/* Create a context, run work beside the blocks of the others, and end it. */
static void visit_context(struct worker *worker)
{
    CUcontext context = NULL;
    CUstream stream = NULL;
    uint64_t base = 0;
    if (run.through_pool || pthread_rwlock_trywrlock(&capturing) != 0) {
        return;
    }
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must((CUresult)run.sim.touch(stream, NULL, 0), "work in a new context");
    for (uint64_t n = draw(worker, 400); n > 0; n--) {
        if (take_block(worker, pick_size(worker), &base) && draw(worker, 8) != 0) {
            MUST(cuMemFree_v2(base));
        }
    }
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(run.contexts[worker->context]));
    run.contexts_ended++;
    pthread_rwlock_unlock(&capturing);
}

static void step(struct worker *worker)
{
    uint64_t kind = draw(worker, 10000);
    if (kind < 7800) {
        allocate_or_free(worker);
    } else if (kind < 8900) {
        work(worker);
    } else if (kind < 9700) {
        let_the_device_work(worker);
    } else if (kind < 9900) {
        enter_context(worker);
    } else if (kind < 9960) {
        renew_stream(worker);
    } else if (kind < 9980) {
        capture(worker);
    } else if (kind < 9983) {
        visit_context(worker);
    } else if (kind < 9990 && pthread_rwlock_tryrdlock(&capturing) == 0) {
        synchronize();
        pthread_rwlock_unlock(&capturing);
    }
}

static void *work_through(void *argument)
{
    struct worker *worker = argument;
    enter_context(worker);
    for (uint64_t i = 0; i < run.ops / run.thread_count && !run.is_broken; i++) {
        step(worker);
    }
    return NULL;
}

/* ---- begin, end */

static void open_driver(void)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    bool is_open = run.through_pool ? flw_sim_open(&run.sim)
                                    : flw_driver_open(&run.sim.cu, NULL, message) == FALLOW_OK &&
                                          flw_sim_find_controls(&run.sim);
    if (!is_open) {
        fprintf(stderr, "quiescence: no simulated driver\n");
        exit(2);
    }
    if (!run.through_pool && quiescence_use_hooks != NULL) {
        quiescence_use_hooks(&run.sim.cu);
    }
}

static void make_pool(unsigned context)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.order = FALLOW_ORDER_CONTEXT;
    config.device = context == 2;
    config.context = run.contexts[context];
    if (fallow_pool_create(&config, &run.pools[context]) != FALLOW_OK) {
        exit(2);
    }
}

static void make_graph(void)
{
    CUstream stream = NULL;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 3; i++) {
        must((CUresult)run.sim.touch(stream, NULL, 0), "work in a capture");
    }
    MUST(cuStreamEndCapture(stream, &run.graph_source));
    MUST(cuGraphInstantiateWithFlags(&run.graph, run.graph_source, 0));
    MUST(cuStreamDestroy_v2(stream));
}

static void make_context(unsigned i)
{
    if (i == 1) {
        MUST(cuCtxCreate_v2(&run.contexts[1], 0, 0));
    } else if (i == 2) {
        MUST(cuDevicePrimaryCtxRetain(&run.contexts[2], 1));
    }
    MUST(cuCtxSetCurrent(run.contexts[i]));
    for (unsigned n = 0; n < STREAMS_EACH; n++) {
        struct model_stream *stream = &run.model.streams[run.model.stream_count++];
        stream->context = run.contexts[i];
        MUST(cuStreamCreate(&stream->stream, n % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0));
    }
    if (run.through_pool) {
        make_pool(i);
    }
}

static void begin(void)
{
    open_driver();
    flw_sim_config config = flw_sim_config_default(run.seed);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = 1536 * MIB;
    config.device_count = 2;
    run.contexts[0] = flw_sim_begin(&run.sim, &config);
    run.model.sim = &run.sim;
    pthread_mutex_init(&run.model.lock, NULL);
    for (unsigned i = 0; i < run.context_count; i++) {
        make_context(i);
    }
    MUST(cuCtxSetCurrent(run.contexts[0]));
    make_graph();
}

static void end(void)
{
    for (unsigned i = 0; i < run.block_count; i++) {
        free_block(&run.blocks[i]);
    }
    for (unsigned i = 0; i < run.context_count && run.through_pool; i++) {
        if (fallow_pool_validate(run.pools[i]) != FALLOW_OK) {
            run.is_broken = true;
        }
        fallow_pool_destroy(run.pools[i]);
    }
}

static bool parse(int count, char **words)
{
    run.ops = 20000;
    run.thread_count = 2;
    run.context_count = 2;
    run.seed = 1;
    run.through_pool = true;
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 0);
        if (strcmp(words[i], "--ops") == 0) {
            run.ops = value;
        } else if (strcmp(words[i], "--threads") == 0) {
            run.thread_count = (unsigned)value;
        } else if (strcmp(words[i], "--contexts") == 0) {
            run.context_count = (unsigned)value;
        } else if (strcmp(words[i], "--seed") == 0) {
            run.seed = value;
        } else if (strcmp(words[i], "--through") == 0) {
            run.through_pool = strcmp(words[i + 1], "driver") != 0;
        } else {
            return false;
        }
    }
    return count % 2 == 1 && run.thread_count >= 1 && run.thread_count <= THREADS_MAX &&
           run.context_count >= 1 && run.context_count <= CONTEXTS_MAX;
}

int stress_quiescence(int count, char **words)
{
    static struct worker workers[THREADS_MAX];
    if (!parse(count, words)) {
        fprintf(stderr, "usage: stress_quiescence [--ops N] [--threads 1..8] [--contexts 1..3] "
                        "[--seed N] [--through pool|driver]\n");
        return 2;
    }
    fprintf(stderr, "quiescence: --seed %llu\n", (unsigned long long)run.seed);
    begin();
    for (unsigned i = 0; i < run.thread_count; i++) {
        workers[i] = (struct worker){.state = run.seed * 1000003 + i, .index = i};
        if (pthread_create(&workers[i].thread, NULL, work_through, &workers[i]) != 0) {
            return 2;
        }
    }
    for (unsigned i = 0; i < run.thread_count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    end();
    printf("%llu operations, %llu blocks allocated, %llu stretches of freed ones among them, %llu "
           "refused, %llu graph launches, %llu captures, %llu contexts ended: %s\n",
           (unsigned long long)run.ops, (unsigned long long)run.model.allocated_count,
           (unsigned long long)run.model.reused_count, (unsigned long long)run.refused,
           (unsigned long long)run.launches, (unsigned long long)run.captures,
           (unsigned long long)run.contexts_ended, run.is_broken ? "BROKEN" : "no rule broken");
    return run.is_broken ? BROKEN : 0;
}
