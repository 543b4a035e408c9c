/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random programs of several threads and streams over a pool on the simulated device, with
 * the rule checker on. Every choice comes from the seed; one thread makes it repeatable to the
 * operation. Does not: measure time.
 */
#include "stress_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "support/client_capture.h"

#define LIVES         4 /* a worker's thread ends and another goes on with its blocks */
#define MAILBOX_SLOTS 64

/* Blocks on their way from one thread to another; used on shared streams only. */
struct mailbox {
    pthread_mutex_t mutex;
    unsigned count;
    struct flw_client_block blocks[MAILBOX_SLOTS];
};

struct run {
    struct stress_settings settings;
    struct flw_sim sim;
    struct flw_put put;
    struct flw_overlap *overlap;
    struct mailbox mailbox;
    CUstream shared[STRESS_SHARED_STREAMS];
    fallow_stats stats; /* at the end */
    atomic_bool failed;
};

struct worker {
    struct run *run;
    struct flw_client client;
    uint64_t ops_left, life_ops, until_validate;
    pthread_t thread;
};

static void fail(struct worker *worker, const char *call, fallow_status status)
{
    if (!atomic_exchange(&worker->run->failed, true)) {
        fprintf(stderr, "stress_pool: %s answered %s after %llu operations of its thread\n", call,
                fallow_status_name(status), (unsigned long long)worker->client.op_count);
    }
}

/* Sizes as programs ask for them: half of them from a few that come again and again, so that memory
 * goes from stream to stream; the others mostly small, spread evenly over the powers of two. */
static size_t pick_size(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint64_t most = worker->run->settings.most_bytes;
    static const size_t popular[] = {512, 4096, 40000, 1 << 20, (2 << 20) + 1, 6 << 20};
    size_t again = popular[flw_client_below(client, sizeof popular / sizeof *popular)];
    if (again <= most && flw_client_chance(client, 50)) {
        return again;
    }
    uint64_t kind = flw_client_below(client, 100);
    uint64_t top = kind < 60 ? flw_min(most, 4096) : kind < 88 ? flw_min(most, FLW_MIB) : most;
    unsigned log2 = (unsigned)flw_client_below(client, flw_log2_floor(top) + 1);
    uint64_t size = (1ull << log2) + flw_client_below(client, 1ull << log2);
    return flw_min(size, top);
}

static uint32_t pick_stream(struct worker *worker)
{
    return (uint32_t)flw_client_below(&worker->client, worker->client.stream_count);
}

static void free_one(struct worker *worker, size_t index)
{
    struct flw_client *client = &worker->client;
    uint32_t stream =
        flw_client_chance(client, 70) ? client->blocks[index].home : pick_stream(worker);
    bool sized = client->blocks[index].align_bytes == 0 && flw_client_chance(client, 25);
    fallow_status status = flw_client_free(client, index, stream, sized);
    if (status != FALLOW_OK) {
        fail(worker, sized ? "free_sized" : "free", status);
    }
}

static void adopt(struct worker *worker, void *ptr, size_t size, size_t align, uint32_t stream)
{
    struct flw_client_block block = {
        .ptr = ptr, .size_bytes = size, .align_bytes = align, .home = stream};
    size_t need = align != 0 ? align : size >= 512 ? 512 : 256;
    if (ptr == NULL || (uintptr_t)ptr % need != 0) {
        fail(worker, "alloc (alignment)", FALLOW_OK);
    } else if (!flw_client_adopt(&worker->client, &block)) {
        fail(worker, "alloc (overlap)", FALLOW_OK);
    }
}

/* No room: return half of what there is, so that others get on too. */
static void make_room(struct worker *worker)
{
    for (size_t keep = worker->client.count / 2;
         worker->client.count > keep && !atomic_load(&worker->run->failed);) {
        free_one(worker, flw_client_below(&worker->client, worker->client.count));
    }
}

static void alloc_batch(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint32_t stream = pick_stream(worker);
    size_t sizes[6], count = 1 + flw_client_below(client, 6);
    void *ptrs[6];
    for (size_t i = 0; i < count; i++) {
        sizes[i] = pick_size(worker);
        ptrs[i] = &sizes[i];
    }
    fallow_status status =
        client->put.ops->alloc_batch(client->put.pool, sizes, count, client->streams[stream], ptrs);
    client->op_count += count;
    for (size_t i = 0; i < count; i++) {
        if (status == FALLOW_OK) {
            adopt(worker, ptrs[i], sizes[i], 0, stream);
        } else if (ptrs[i] != NULL) {
            fail(worker, "alloc_batch (a pointer after a failure)", status);
        }
    }
    if (status == FALLOW_OUT_OF_MEMORY) {
        make_room(worker);
    } else if (status != FALLOW_OK) {
        fail(worker, "alloc_batch", status);
    }
}

static fallow_status alloc_request(struct worker *worker, size_t size, uint32_t stream,
                                   void **out_ptr)
{
    struct flw_client *client = &worker->client;
    static const uint32_t flags[] = {0, FALLOW_REQUEST_NO_WAIT, FALLOW_REQUEST_NO_GROW,
                                     FALLOW_REQUEST_DEDICATED, FALLOW_REQUEST_ZERO};
    fallow_request request = {.struct_size = sizeof request, .size_bytes = size};
    request.flags = flags[flw_client_below(client, sizeof flags / sizeof *flags)];
    request.tag = 1 + (uint32_t)flw_client_below(client, 9);
    fallow_status status = client->put.ops->alloc_request(client->put.pool, &request,
                                                          client->streams[stream], out_ptr);
    bool may_refuse =
        request.flags == FALLOW_REQUEST_NO_WAIT || request.flags == FALLOW_REQUEST_NO_GROW;
    return status == FALLOW_WOULD_WAIT && may_refuse ? FALLOW_OUT_OF_MEMORY : status;
}

static void alloc_one(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint32_t stream = pick_stream(worker);
    size_t size = pick_size(worker), align = 0;
    void *ptr = &size;
    fallow_status status;
    uint64_t kind = flw_client_below(client, 100);
    if (kind < 5) {
        align = 1ull << flw_client_below(client, 22);
        status = client->put.ops->alloc_aligned(client->put.pool, size, align,
                                                client->streams[stream], &ptr);
    } else if (kind < 10 && client->put.ops->alloc_request != NULL) {
        status = alloc_request(worker, size, stream, &ptr);
    } else {
        status = client->put.ops->alloc(client->put.pool, size, client->streams[stream], &ptr);
    }
    client->op_count++;
    if (status == FALLOW_OK) {
        adopt(worker, ptr, size, align, stream);
    } else if (ptr != NULL) {
        fail(worker, "alloc (a pointer after a failure)", status);
    } else if (status == FALLOW_OUT_OF_MEMORY) {
        make_room(worker);
    } else {
        fail(worker, "alloc", status);
    }
}

static void send_block(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct mailbox *mailbox = &worker->run->mailbox;
    size_t index = flw_client_below(client, client->count);
    struct flw_client_block *block = &client->blocks[index];
    uint32_t shared = (uint32_t)flw_client_below(client, STRESS_SHARED_STREAMS);
    flw_client_gather(client, block);
    flw_client_order(client, block->home, shared);
    block->home = shared;
    pthread_mutex_lock(&mailbox->mutex);
    if (mailbox->count < MAILBOX_SLOTS) {
        flw_client_drop(client, index, &mailbox->blocks[mailbox->count]);
        mailbox->count++;
    }
    pthread_mutex_unlock(&mailbox->mutex);
}

static void receive_block(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct mailbox *mailbox = &worker->run->mailbox;
    pthread_mutex_lock(&mailbox->mutex);
    if (mailbox->count > 0 && client->count < client->capacity) {
        client->blocks[client->count++] = mailbox->blocks[--mailbox->count];
    }
    pthread_mutex_unlock(&mailbox->mutex);
}

/* Frees that must be refused and change nothing. */
static void misuse(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct flw_put *put = &client->put;
    fallow_stream stream = client->streams[pick_stream(worker)];
    int local = 0;
    void *wild[] = {&local, (void *)(uintptr_t)flw_client_random(client), (void *)(uintptr_t)1};
    fallow_status status = put->ops->free(put->pool, wild[flw_client_below(client, 2) * 2], stream);
    if (status == FALLOW_INVALID_POINTER && client->count > 0) {
        const struct flw_client_block *block =
            &client->blocks[flw_client_below(client, client->count)];
        unsigned char *inside = block->ptr + 1 + flw_client_below(client, block->size_bytes);
        if (inside < block->ptr + block->size_bytes) {
            status = put->ops->free(put->pool, inside, stream);
        }
    }
    client->op_count += 2;
    if (status != FALLOW_INVALID_POINTER) {
        fail(worker, "a wild or interior free", status);
    }
}

/* With one thread every counter is exact at every moment. */
static void compare_ledger(struct worker *worker)
{
    struct run *run = worker->run;
    fallow_stats stats;
    uint64_t requested = 0, live = worker->client.count + run->mailbox.count;
    fallow_status status = run->put.ops->get_stats(run->put.pool, &stats);
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    for (size_t i = 0; i < worker->client.count; i++) {
        requested += worker->client.blocks[i].size_bytes;
    }
    for (size_t i = 0; i < run->mailbox.count; i++) {
        requested += run->mailbox.blocks[i].size_bytes;
    }
    bool same = run->put.ops->exact_ledger ? stats.reserved_bytes == ledger.given_bytes
                                           : stats.reserved_bytes <= ledger.given_bytes;
    if (status != FALLOW_OK || !same || stats.requested_bytes != requested ||
        stats.live_count != live) {
        fprintf(stderr,
                "stats: reserved %llu, ledger %llu; requested %llu, model %llu; live %llu, model "
                "%llu\n",
                (unsigned long long)stats.reserved_bytes, (unsigned long long)ledger.given_bytes,
                (unsigned long long)stats.requested_bytes, (unsigned long long)requested,
                (unsigned long long)stats.live_count, (unsigned long long)live);
        fail(worker, "get_stats", status);
    }
}

static void let_the_device_work(struct worker *worker)
{
    const struct stress_settings *settings = &worker->run->settings;
    if (settings->schedule == FLW_SIM_CLOCK) {
        worker->run->sim.advance(flw_client_below(&worker->client, settings->lag_ns + 1));
    } else {
        worker->run->sim.step(1ull << flw_client_below(&worker->client, 10));
    }
}

/* What happens once in hundreds of operations. */
static void rare(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct run *run = worker->run;
    const struct flw_put_ops *ops = client->put.ops;
    uint64_t kind = flw_client_below(client, 100);
    fallow_status status = FALLOW_OK;
    const char *call = "poll";
    uint32_t own = STRESS_SHARED_STREAMS +
                   (uint32_t)flw_client_below(client, client->stream_count - STRESS_SHARED_STREAMS);
    if (kind < 20 && run->settings.retire) {
        call = "stream_retire";
        status = flw_client_renew_stream(client, own);
    } else if (kind < 25) {
        call = "trim";
        status = ops->trim(client->put.pool, flw_client_below(client, 64 * FLW_MIB));
        client->op_count++;
    } else if (kind < 45 && run->settings.capture && ops->capture_begin != NULL &&
               client->count < client->capacity / 2) {
        call = "a capture";
        struct flw_client_capture how = {.stream = own, .joined = own, .most_bytes = 64 << 10};
        if (flw_client_chance(client, 50)) {
            how.joined = client->stream_count - 1;
        }
        status = flw_client_capture_run(client, &how);
        status = status == FALLOW_OUT_OF_MEMORY ? FALLOW_OK : status;
    } else if (kind < 70) {
        misuse(worker);
    } else if (ops->poll != NULL) {
        status = ops->poll(client->put.pool);
        client->op_count++;
    }
    if (status != FALLOW_OK) {
        fail(worker, call, status);
    }
    if (run->settings.threads == 1) {
        compare_ledger(worker);
    }
    if (flw_sim_read_ledger(&run->sim).violation_count != 0) {
        fail(worker, "the rule checker (see below)", FALLOW_OK);
    }
}

static void step(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint64_t live = worker->run->settings.live;
    uint64_t kind = flw_client_below(client, 1000);
    bool is_full = client->count >= live || client->count + 8 > client->capacity;
    bool lends = client->count == 0 || (kind >= 100 && kind < 555 && !is_full);
    if (kind < 3) {
        rare(worker);
    } else if (kind < 10) {
        let_the_device_work(worker);
    } else if (kind < 30) {
        receive_block(worker);
    } else if (lends && kind >= 100 && kind < 110 && client->put.ops->alloc_batch != NULL) {
        alloc_batch(worker);
    } else if (lends) {
        alloc_one(worker);
    } else if (kind < 50) {
        send_block(worker);
    } else if (kind < 100) {
        flw_client_read(client, &client->blocks[flw_client_below(client, client->count)],
                        pick_stream(worker));
    } else {
        free_one(worker, flw_client_below(client, client->count));
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct run *run = worker->run;
    flw_client_enter_device(&run->sim);
    uint64_t until = worker->client.op_count + worker->life_ops;
    while (worker->client.op_count < until && !atomic_load(&run->failed)) {
        step(worker);
        if (worker->until_validate != 0 && --worker->until_validate == 0) {
            worker->until_validate = run->settings.validate_every;
            if (run->put.ops->validate != NULL) {
                fallow_status status = run->put.ops->validate(run->put.pool);
                if (status != FALLOW_OK) {
                    fail(worker, "validate", status);
                }
            }
        }
    }
    run->sim.cu.cuCtxSetCurrent(NULL);
    return NULL;
}

static void run_workers(struct run *run, struct worker *workers)
{
    for (unsigned life = 0; life < LIVES && !atomic_load(&run->failed); life++) {
        for (uint64_t i = 0; i < run->settings.threads; i++) {
            workers[i].life_ops = run->settings.ops / run->settings.threads / LIVES;
            if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
                abort();
            }
        }
        for (uint64_t i = 0; i < run->settings.threads; i++) {
            pthread_join(workers[i].thread, NULL);
        }
    }
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    if (level <= FALLOW_LOG_WARNING) {
        fprintf(stderr, "pool: %s\n", message);
    }
}

static void start(struct run *run, struct worker *workers)
{
    const struct stress_settings *settings = &run->settings;
    flw_sim_config world = {.struct_size = sizeof world,
                            .device_bytes = settings->device_bytes,
                            .seed = settings->seed,
                            .schedule = settings->schedule,
                            .lag_ns = settings->lag_ns,
                            .check = settings->check,
                            .backed = (settings->checks & ~(uint64_t)FALLOW_CHECK_FAST) != 0,
                            .without_vmm = settings->without_vmm};
    run->sim.reset(&world);
    flw_client_enter_device(&run->sim);
    fallow_pool_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.limit_bytes = settings->limit_bytes;
    config.economy = (fallow_economy)settings->economy;
    config.reuse_policy = (fallow_reuse_policy)settings->reuse;
    config.checks = (uint32_t)settings->checks;
    config.log = log_line;
    run->put.ops = flw_put_find(settings->pool);
    fallow_status status = run->put.ops->create(&run->sim.cu, &config, &run->put.pool);
    if (status == FALLOW_OK && settings->record != NULL && run->put.ops->record != NULL) {
        status = run->put.ops->record(run->put.pool, settings->record);
    }
    if (status != FALLOW_OK) {
        fprintf(stderr, "stress_pool: create answered %s\n", fallow_status_name(status));
        exit(1);
    }
    run->overlap = flw_overlap_create();
    pthread_mutex_init(&run->mailbox.mutex, NULL);
    for (unsigned i = 0; i < STRESS_SHARED_STREAMS; i++) {
        if (run->sim.cu.cuStreamCreate(&run->shared[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            abort();
        }
    }
    for (uint64_t i = 0; i < settings->threads; i++) {
        struct flw_client *client = &workers[i].client;
        workers[i].run = run;
        workers[i].until_validate = settings->validate_every;
        client->sim = &run->sim;
        client->put = run->put;
        client->overlap = run->overlap;
        client->random = settings->seed * 1000003 + i;
        client->touch_bytes = 64 << 10;
        client->trace_address = settings->trace_address;
        flw_client_init(client, 2 * settings->live + 256,
                        STRESS_SHARED_STREAMS + (uint32_t)settings->streams, run->shared,
                        STRESS_SHARED_STREAMS);
    }
}

/* Everything back, and the ledger says so. */
static void finish(struct run *run, struct worker *workers)
{
    struct worker *first = &workers[0];
    while (run->mailbox.count > 0 && !atomic_load(&run->failed)) {
        first->client.blocks[first->client.count] = run->mailbox.blocks[--run->mailbox.count];
        first->client.count++;
        free_one(first, first->client.count - 1);
    }
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        while (workers[i].client.count > 0 && !atomic_load(&run->failed)) {
            free_one(&workers[i], workers[i].client.count - 1);
        }
    }
    if (!atomic_load(&run->failed)) {
        first->client.count = 0;
        (void)!run->put.ops->trim(run->put.pool, 0); /* ends quarantine */
        compare_ledger(first);
    }
    if (!atomic_load(&run->failed) && run->put.ops->validate != NULL) {
        fallow_status status = run->put.ops->validate(run->put.pool);
        if (status != FALLOW_OK) {
            fail(first, "validate at the end", status);
        }
    }
    if (atomic_load(&run->failed)) {
        return; /* the pool is not to be trusted any more */
    }
    (void)!run->put.ops->get_stats(run->put.pool, &run->stats);
    if (run->stats.damage_count != 0) {
        fail(first, "a debug check (damage where none was done)", FALLOW_OK);
    }
    run->put.ops->destroy(run->put.pool);
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        flw_client_finish(&workers[i].client, STRESS_SHARED_STREAMS);
    }
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    if (ledger.given_bytes != 0 || ledger.event_count != 0 || ledger.mapping_count != 0 ||
        ledger.handle_count != 0 || ledger.reserved_address_bytes != 0) {
        fprintf(stderr,
                "left behind: %llu bytes, %llu events, %llu mappings, %llu handles, %llu bytes of "
                "addresses\n",
                (unsigned long long)ledger.given_bytes, (unsigned long long)ledger.event_count,
                (unsigned long long)ledger.mapping_count, (unsigned long long)ledger.handle_count,
                (unsigned long long)ledger.reserved_address_bytes);
        fail(first, "destroy", FALLOW_OK);
    }
    flw_overlap_destroy(run->overlap);
}

int stress_run(const struct stress_settings *settings)
{
    static struct run run;
    static struct worker workers[STRESS_MOST_THREADS];
    run.settings = *settings;
    fprintf(stderr, "stress_pool: --pool %s --seed %llu --ops %llu --threads %llu --limit %llu\n",
            run.settings.pool, (unsigned long long)run.settings.seed,
            (unsigned long long)run.settings.ops, (unsigned long long)run.settings.threads,
            (unsigned long long)run.settings.limit_bytes);
    if (!flw_sim_open(&run.sim)) {
        return 2;
    }
    start(&run, workers);
    run_workers(&run, workers);
    finish(&run, workers);
    if (flw_sim_print_violations(&run.sim) != 0) {
        atomic_store(&run.failed, true);
    }
    uint64_t ops = 0;
    for (uint64_t i = 0; i < run.settings.threads; i++) {
        ops += workers[i].client.op_count;
    }
    printf("%s: %llu operations, %llu driver calls, %llu hits, %llu steals, %llu host waits, %llu "
           "remaps, %llu refusals for room\n",
           atomic_load(&run.failed) ? "BROKEN" : "clean", (unsigned long long)ops,
           (unsigned long long)flw_sim_read_ledger(&run.sim).call_count,
           (unsigned long long)run.stats.hit_count, (unsigned long long)run.stats.steal_count,
           (unsigned long long)run.stats.wait_count, (unsigned long long)run.stats.remap_count,
           (unsigned long long)run.stats.oom_count);
    return atomic_load(&run.failed) ? 1 : 0;
}
