/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random programs of several threads and streams over a pool on the simulated device, with
 * the rule checker on: the world, the workers' threads, the end. The seed determines every choice,
 * so with one thread a run repeats exactly. Does not: measure time. */
#include "stress_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "memory/size_class.h"

#define LIVES       4   /* how often a worker's thread ends and another continues with the blocks */
#define STEPS_AFTER 300 /* of each worker once the context has ended */

static _Thread_local struct worker *self;

struct worker *stress_self(void)
{
    return self;
}

static struct run *current_run; /* one at a time */

void stress_fail(struct worker *worker, const char *call, fallow_status status)
{
    if (!atomic_exchange(&current_run->failed, true)) {
        fprintf(stderr, "stress_pool: %s answered %s after %llu operations of its thread\n", call,
                fallow_status_name(status),
                (unsigned long long)(worker != NULL ? worker->client.op_count : 0));
    }
}

bool stress_allows(struct worker *worker, fallow_status status)
{
    struct run *run = worker->run;
    switch (status) {
    case FALLOW_OUT_OF_MEMORY:
        return true;
    case FALLOW_ASLEEP:
        return worker->client.is_quiet && run->settings.sleep;
    case FALLOW_DRIVER:
    case FALLOW_NOT_SUPPORTED:
        atomic_fetch_add(&run->refusals_by_driver, 1);
        return run->settings.faults != 0 || run->is_refused || atomic_load(&run->is_reset);
    case FALLOW_DEVICE_LOST:
        atomic_store(&run->lost, true);
        return atomic_load(&run->is_reset) ||
               atomic_load(&run->is_gone); /* a refusal alone loses no
                                                                              device */
    case FALLOW_OUT_OF_HOST_MEMORY:        /* no room to save, no event */
        return run->settings.faults != 0;
    case FALLOW_INVALID_STREAM:
        return atomic_load(&run->is_reset);
    default:
        return false;
    }
}

void stress_expect(struct worker *worker, const char *call, fallow_status status)
{
    if (status != FALLOW_OK && !stress_allows(worker, status)) {
        stress_fail(worker, call, status);
    }
}

static bool is_over(const struct run *run)
{
    return atomic_load(&run->failed) || (atomic_load(&run->lost) && !atomic_load(&run->is_reset));
}

/* Run one operation, excluded from changes of the quiet state. */
static void step_in_turn(struct worker *worker)
{
    struct run *run = worker->run;
    pthread_mutex_lock(&run->turnstile);
    pthread_mutex_unlock(&run->turnstile);
    pthread_rwlock_rdlock(&run->steps);
    worker->client.is_quiet = run->is_quiet || worker->client.is_cut_off;
    stress_step(worker);
    pthread_rwlock_unlock(&run->steps);
    if (worker->wants_sleep) {
        worker->wants_sleep = false;
        stress_sleep(worker);
    }
    if (worker->wants_renewal) {
        worker->wants_renewal = false;
        stress_renew_shared(worker);
    }
}

static void validate(struct worker *worker)
{
    struct run *run = worker->run;
    worker->until_validate = run->settings.validate_every;
    if (run->put.ops->validate != NULL && !atomic_load(&run->lost)) {
        fallow_status status = run->put.ops->validate(run->put.pool);
        if (status != FALLOW_OK) {
            stress_fail(worker, "validate", status);
        }
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct run *run = worker->run;
    self = worker;
    flw_client_enter_device(&run->sim);
    uint64_t until = worker->client.op_count + worker->life_ops;
    while (worker->client.op_count < until && !is_over(run)) {
        step_in_turn(worker);
        if (worker->until_validate != 0 && --worker->until_validate == 0) {
            validate(worker);
        }
    }
    run->sim.cu.cuCtxSetCurrent(NULL);
    return NULL;
}

/* End the primary context while other threads call the pool. Afterwards blocks and cached memory
 * may still be allocated and freed; nothing may crash or hang. */
static void *work_after_the_end(void *argument)
{
    struct worker *worker = argument;
    struct run *run = worker->run;
    CUdevice device = 0;
    self = worker;
    (void)run->sim.cu.cuCtxSetCurrent(run->context); /* may have ended */
    for (unsigned i = 0; i < STEPS_AFTER && !atomic_load(&run->failed); i++) {
        if (i == STEPS_AFTER / 4 && worker->life_ops == 0 &&
            run->sim.cu.cuDevicePrimaryCtxReset_v2(device) != CUDA_SUCCESS) {
            stress_fail(worker, "the test's own cuDevicePrimaryCtxReset", FALLOW_OK);
        }
        step_in_turn(worker);
    }
    return NULL;
}

static void run_threads(struct run *run, struct worker *workers, void *(*body)(void *))
{
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, body, &workers[i]) != 0) {
            abort();
        }
    }
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

static void run_workers(struct run *run, struct worker *workers)
{
    for (unsigned life = 0; life < LIVES && !is_over(run); life++) {
        for (uint64_t i = 0; i < run->settings.threads; i++) {
            workers[i].life_ops = run->settings.ops / run->settings.threads / LIVES;
        }
        run_threads(run, workers, work);
    }
    if (run->settings.reset && !is_over(run)) {
        for (uint64_t i = 0; i < run->settings.threads; i++) {
            stress_leave_others(&workers[i]);
            workers[i].client.is_cut_off = true;
            workers[i].life_ops = i; /* 0: this worker ends the context */
        }
        (void)run->sim.cu.cuCtxGetCurrent(&run->context);
        atomic_store(&run->is_reset, true);
        run_threads(run, workers, work_after_the_end);
    }
}

/* "N bytes stay with the driver ...: CALL answered ...", where the profile refuses the call. */
static bool note_what_stays(struct run *run, const char *message)
{
    char call[64];
    const char *at = strstr(message, "until the process ends: ");
    if (at == NULL || !run->is_refused ||
        sscanf(at, "until the process ends: %63s answered", call) != 1 ||
        strstr(run->sim.played(), call) == NULL) {
        return false;
    }
    run->kept_bytes += strtoull(message, NULL, 10);
    run->has_kept = true;
    return true;
}

static void log_line(void *context, fallow_log_level level, const char *message)
{
    struct run *run = context;
    bool is_expected = run->settings.faults != 0 || run->settings.reset || run->settings.sleep ||
                       strstr(message, "out of memory") != NULL;
    if (strstr(message, "lost") != NULL && !atomic_exchange(&run->has_loss, true)) {
        snprintf(run->loss, sizeof run->loss, "%s", message);
    }
    is_expected |= note_what_stays(run, message);
    if (level <= FALLOW_LOG_WARNING && !is_expected) {
        fprintf(stderr, "pool: %s\n", message);
    }
}

/* Free blocks when memory runs out, called on a thread of the run. */
static int free_for_room(void *context, size_t size_bytes, fallow_stream stream)
{
    struct run *run = context;
    struct worker *worker = self;
    (void)size_bytes;
    (void)stream;
    atomic_fetch_add(&run->oom_calls, 1);
    if (worker == NULL || worker->is_in_capture || worker->client.count == 0) {
        return 0;
    }
    for (unsigned i = 0; i < 3 && worker->client.count > 0; i++) {
        stress_free_one(worker, flw_client_below(&worker->client, worker->client.count));
    }
    return 1;
}

static fallow_pool_config config_of(struct run *run)
{
    const struct stress_settings *settings = &run->settings;
    static const int peers[] = {1};
    fallow_pool_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.limit_bytes = settings->limit_bytes;
    config.economy = (fallow_economy)settings->economy;
    config.one_handle_bytes = settings->one_handle_bytes;
    config.decay_ms = (uint32_t)settings->decay_ms;
    config.reuse_policy = (fallow_reuse_policy)settings->reuse;
    config.checks = (uint32_t)settings->checks;
    config.streams_may_die = settings->dies;
    config.helper_thread = settings->helper;
    config.order = (fallow_order)settings->order;
    config.handle_types = settings->share ? FALLOW_HANDLE_FD : 0u;
    config.page_source = settings->range_bytes != 0 ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_AUTOMATIC;
    config.peer_devices = peers;
    config.peer_device_count = settings->share && settings->seed % 2 == 0;
    config.on_oom = settings->oom ? free_for_room : NULL;
    config.oom_context = run;
    config.log = log_line;
    config.log_context = run;
    return config;
}

static void create_pools(struct run *run)
{
    const struct stress_settings *settings = &run->settings;
    fallow_pool_config config = config_of(run);
    run->put.ops = &flw_put_fallow;
    fallow_status status = run->put.ops->create(&run->sim.cu, &config, &run->put.pool);
    if (status == FALLOW_OK && settings->share) {
        status = run->put.ops->create(&run->sim.cu, &config, &run->importer);
    }
    if (status == FALLOW_OK && settings->record != NULL && run->put.ops->record != NULL) {
        status = run->put.ops->record(run->put.pool, settings->record);
    }
    if (status != FALLOW_OK) {
        fprintf(stderr, "stress_pool: create answered %s\n", fallow_status_name(status));
        exit(1);
    }
}

static void begin_world(struct run *run)
{
    const struct stress_settings *settings = &run->settings;
    flw_sim_config world = {.struct_size = sizeof world,
                            .device_bytes = settings->device_bytes,
                            .device_count = settings->share ? 3 : 1,
                            .seed = settings->seed,
                            .schedule = settings->schedule,
                            .lag_ns = settings->lag_ns,
                            .check = settings->check,
                            .backed = settings->checks != 0,
                            .without_vmm = settings->without_vmm,
                            .reserve_most_bytes = settings->range_bytes};
    run->sim.reset(&world);
    run->is_refused = strstr(run->sim.played(), "refusing") != NULL;
    flw_client_enter_device(&run->sim);
    run->overlap = flw_overlap_create();
    pthread_mutex_init(&run->mailbox.mutex, NULL);
    pthread_mutex_init(&run->sleeper, NULL);
    pthread_mutex_init(&run->turnstile, NULL);
    pthread_rwlock_init(&run->steps, NULL);
    for (unsigned i = 0; i < STRESS_SHARED_STREAMS; i++) {
        if (run->sim.cu.cuStreamCreate(&run->shared[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            abort();
        }
    }
}

static void start(struct run *run, struct worker *workers)
{
    const struct stress_settings *settings = &run->settings;
    begin_world(run);
    create_pools(run);
    stress_watch(run);
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
        client->orders_by_context = settings->order != 0;
        client->announces_first = settings->threads > 1;
        flw_client_init(client, 2 * settings->live + 256,
                        STRESS_SHARED_STREAMS + (uint32_t)settings->streams, run->shared,
                        STRESS_SHARED_STREAMS);
        client->has_faults = settings->faults != 0;
        client->is_gone = &run->is_gone;
        client->is_refused = run->is_refused;
    }
}

/* Free all blocks. */
static void free_all(struct run *run, struct worker *workers)
{
    struct worker *first = &workers[0];
    while (run->mailbox.count > 0 && !atomic_load(&run->failed)) {
        first->client.blocks[first->client.count] = run->mailbox.blocks[--run->mailbox.count];
        first->client.count++;
        stress_free_one(first, first->client.count - 1);
    }
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        while (workers[i].client.count > 0 && !atomic_load(&run->failed)) {
            stress_free_one(&workers[i], workers[i].client.count - 1);
        }
        if (!run->settings.reset) {
            stress_leave_others(&workers[i]);
        }
    }
}

/* Check a pool that still has the device. */
static void check_whole(struct run *run, struct worker *first)
{
    (void)!run->put.ops->trim(run->put.pool, 0); /* ends quarantine */
    if (run->importer != NULL) {
        (void)!run->put.ops->trim(run->importer, 0);
    }
    stress_compare_ledger(first);
    if (!atomic_load(&run->failed) && run->put.ops->validate != NULL) {
        fallow_status status = run->put.ops->validate(run->put.pool);
        if (status != FALLOW_OK) {
            stress_fail(first, "validate at the end", status);
        }
    }
    (void)!run->put.ops->get_stats(run->put.pool, &run->stats);
    if (run->stats.damage_count != 0) {
        stress_fail(first, "a debug check (damage where none was done)", FALLOW_OK);
    }
    if (run->refusals_by_driver > run->planned_faults && !run->is_refused) {
        stress_fail(first, "more calls than driver calls were refused: one", FALLOW_DRIVER);
    }
}

/* Allow only the memory that the driver refused to release, as logged, and one byte that destroy
 * frees to wait for the device. */
static void check_nothing_is_left(struct run *run, struct worker *first)
{
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    bool has_places = ledger.event_count != 0 || ledger.mapping_count != 0 ||
                      ledger.handle_count != 0 || ledger.reserved_address_bytes != 0;
    uint64_t grain = run->has_kept ? FLW_UNIT_BYTES : 1;
    uint64_t kept_bytes = flw_align_down(ledger.given_bytes, grain);
    uint64_t said_bytes = flw_align_down(run->kept_bytes, grain);
    bool is_said = run->settings.share ? kept_bytes <= said_bytes /* by both pools */
                                       : kept_bytes == said_bytes;
    if (!is_said || ledger.pinned_bytes != 0 || (has_places && !run->has_kept)) {
        fprintf(
            stderr,
            "left behind: %llu bytes (%llu said), %llu events, %llu mappings, %llu handles, %llu bytes of "
            "addresses, %llu pinned\n",
            (unsigned long long)ledger.given_bytes, (unsigned long long)run->kept_bytes,
            (unsigned long long)ledger.event_count, (unsigned long long)ledger.mapping_count,
            (unsigned long long)ledger.handle_count,
            (unsigned long long)ledger.reserved_address_bytes,
            (unsigned long long)ledger.pinned_bytes);
        stress_fail(first, "destroy", FALLOW_OK);
    }
}

/* The log names the answer that was to lose the device. */
static void check_loss(struct run *run, struct worker *first)
{
    const char *answer =
        flw_driver_error_name(&run->sim.cu, (CUresult)atomic_load(&run->gone_answer));
    if (!atomic_load(&run->is_gone) || strstr(run->loss, answer) == NULL) {
        fprintf(stderr, "stress_pool: %s; planned: %s\n", run->loss,
                atomic_load(&run->is_gone) ? answer : "no loss");
        stress_fail(first, "what lost the device", FALLOW_DEVICE_LOST);
    }
}

/* Release everything and compare with the ledger. A pool that lost the device keeps the memory. */
static void finish(struct run *run, struct worker *workers)
{
    struct worker *first = &workers[0];
    bool is_reset = atomic_load(&run->is_reset);
    run->sim.fail(NULL, 0, 0, 0);
    self = first;
    free_all(run, workers);
    bool is_whole = !is_over(run) && !is_reset;
    if (is_whole) {
        first->client.count = 0;
        check_whole(run, first);
    }
    if (atomic_load(&run->failed)) {
        return; /* the pool is not to be trusted any more */
    }
    if (is_reset && run->settings.seed % 2 == 0 && run->put.ops->abandon != NULL) {
        run->put.ops->abandon(run->put.pool);
    }
    run->put.ops->destroy(run->put.pool);
    if (run->importer != NULL) {
        run->put.ops->destroy(run->importer);
    }
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        if (is_reset) { /* the streams and events ended with the context */
            free(workers[i].client.blocks);
        } else {
            flw_client_finish(&workers[i].client, STRESS_SHARED_STREAMS);
        }
    }
    if (is_whole) {
        check_nothing_is_left(run, first);
    } else if (!is_reset) {
        check_loss(run, first);
    }
    flw_overlap_destroy(run->overlap);
    self = NULL;
}

static void print_result(struct run *run, const struct worker *workers)
{
    uint64_t ops = 0;
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        ops += workers[i].client.op_count;
    }
    printf("%s: %llu operations, %llu driver calls, %llu hits, %llu steals, %llu host waits, %llu "
           "remaps, %llu refusals for room",
           atomic_load(&run->failed) ? "BROKEN"
           : atomic_load(&run->lost) ? "lost"
                                     : "clean",
           (unsigned long long)ops, (unsigned long long)flw_sim_read_ledger(&run->sim).call_count,
           (unsigned long long)run->stats.hit_count, (unsigned long long)run->stats.steal_count,
           (unsigned long long)run->stats.wait_count, (unsigned long long)run->stats.remap_count,
           (unsigned long long)run->stats.oom_count);
    printf("%s%s", run->loss[0] != '\0' ? "; " : "", run->loss);
    printf(
        "; %u sleeps, %u changes of peers, %u exports, %u uses abroad, %u callbacks for room, %u "
        "planned failures\n",
        run->sleeps, run->peers, run->exports, run->foreign_uses, run->oom_calls,
        run->planned_faults);
}

static int run_once(const struct stress_settings *settings)
{
    static struct run run;
    static struct worker workers[STRESS_MOST_THREADS];
    memset(&run, 0, sizeof run);
    memset(workers, 0, sizeof workers);
    current_run = &run;
    run.settings = *settings;
    run.workers = workers;
    stress_print(settings);
    if (!flw_sim_open(&run.sim)) {
        return 2;
    }
    start(&run, workers);
    run_workers(&run, workers);
    finish(&run, workers);
    if (flw_sim_print_violations(&run.sim) != 0) {
        atomic_store(&run.failed, true);
    }
    print_result(&run, workers);
    return atomic_load(&run.failed) ? 1 : 0;
}

int stress_run(const struct stress_settings *settings)
{
    int result = 0;
    for (uint64_t i = 0; i < settings->rounds && result == 0; i++) {
        struct stress_settings round = *settings;
        round.seed += i;
        if (round.draw) {
            stress_draw(&round);
        }
        result = run_once(&round);
    }
    return result;
}
