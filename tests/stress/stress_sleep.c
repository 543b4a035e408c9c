/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: sleeps and wakes during a run: no work touches the pool's memory, and all other operations
 * continue in the other threads. Does not: check contents (property.sleep_model does). */
#include "stress_worker.h"

#include <sched.h>
#include <stdio.h>

#define MOST_TAGS  10
#define MOST_WAKES 400

/* Free blocks of the sleeping worker, as a watcher would; sometimes refuse the sleep. */
static int before_sleep(void *context)
{
    struct run *run = context;
    struct worker *worker = stress_self();
    if (worker == NULL) {
        stress_fail(NULL, "before_sleep (on a thread that is nobody's)", FALLOW_OK);
        return 1;
    }
    struct flw_client *client = &worker->client;
    for (uint64_t i = flw_client_below(client, 4); i > 0 && client->count > 0; i--) {
        stress_free_one(worker, flw_client_below(client, client->count));
    }
    return run->settings.sleep && flw_client_below(client, 12) == 0;
}

static void after_wake(void *context)
{
    (void)context;
    struct worker *worker = stress_self();
    if (worker != NULL && worker->client.count > 0) {
        stress_free_one(worker, worker->client.count - 1);
    }
}

void stress_watch(struct run *run)
{
    if (run->settings.sleep && run->put.ops->watch_sleep != NULL &&
        run->put.ops->watch_sleep(run->put.pool, before_sleep, after_wake, run) != FALLOW_OK) {
        stress_fail(NULL, "watch_sleep", FALLOW_OK);
    }
}

static void set_quiet(struct run *run, bool is_quiet)
{
    pthread_mutex_lock(&run->turnstile);
    pthread_rwlock_wrlock(&run->steps);
    run->is_quiet = is_quiet;
    pthread_rwlock_unlock(&run->steps);
    pthread_mutex_unlock(&run->turnstile);
}

static void work_quietly(struct worker *worker)
{
    for (uint64_t i = flw_client_below(&worker->client, 60); i > 0; i--) {
        stress_step(worker);
    }
}

/* No other thread may put the pool to sleep or wake it, so the memory held equals the memory
 * shared. */
static void compare_asleep(struct worker *worker)
{
    struct run *run = worker->run;
    fallow_stats stats;
    fallow_status status = run->put.ops->get_stats(run->put.pool, &stats);
    bool is_exact = run->settings.faults == 0 && !run->is_refused; /* else the pool may keep a
                                                                       handle */
    if (status != FALLOW_OK || !stats.is_asleep ||
        (is_exact && stats.reserved_bytes != stats.exported_bytes)) {
        fprintf(stderr, "stats: asleep %u, reserved %llu, exported %llu\n", stats.is_asleep,
                (unsigned long long)stats.reserved_bytes, (unsigned long long)stats.exported_bytes);
        stress_fail(worker, "get_stats of a sleeping pool", status);
    }
    uint64_t given = flw_sim_read_ledger(&run->sim).given_bytes;
    if (stats.reserved_bytes > given) {
        stress_fail(worker, "a sleeping pool's reserved_bytes", status);
    }
}

static bool may_be_busy(const struct run *run, fallow_status status)
{
    /* Peers, imports and validations alternate with a sleep. */
    return status == FALLOW_BUSY && (run->settings.share || run->settings.validate_every != 0);
}

/* Something else has all that is left of the device. */
static void wake_without_room(struct worker *worker)
{
    struct run *run = worker->run;
    CUdeviceptr other = 0;
    size_t free_bytes = 0, total_bytes = 0;
    if (run->sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS ||
        run->sim.cu.cuMemAlloc_v2(&other, free_bytes) != CUDA_SUCCESS) {
        return; /* a planned failure was for the pool, and met this */
    }
    fallow_status status = run->put.ops->wake(run->put.pool);
    if (!may_be_busy(run, status)) {
        stress_expect(worker, "a wake without room", status);
    }
    while (run->sim.cu.cuMemFree_v2(other) != CUDA_SUCCESS && run->settings.faults != 0) {
    }
}

static void wake(struct worker *worker)
{
    struct run *run = worker->run;
    fallow_status status = FALLOW_BUSY;
    if (flw_client_chance(&worker->client, 25)) {
        wake_without_room(worker);
    }
    for (unsigned i = 0; i < MOST_WAKES && status != FALLOW_OK; i++) {
        status = run->put.ops->wake(run->put.pool);
        if (may_be_busy(run, status)) {
            sched_yield(); /* wait for the other's turn, without limit */
            i--;
        }
        if (status == FALLOW_DEVICE_LOST && stress_allows(worker, status)) {
            return;
        }
        if (status != FALLOW_OK && !may_be_busy(run, status) && run->settings.faults == 0) {
            break;
        }
    }
    if (status != FALLOW_OK) {
        stress_fail(worker, "wake", status);
    }
}

static fallow_status put_to_sleep(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct run *run = worker->run;
    uint32_t tags[MOST_TAGS];
    fallow_sleep_request request = {.struct_size = sizeof request, .saved_tags = tags};
    for (uint32_t tag = 0; tag < MOST_TAGS; tag++) {
        if (flw_client_chance(client, 20)) {
            tags[request.saved_tag_count++] = tag;
        }
    }
    request.flags = flw_client_chance(client, 70) ? FALLOW_SLEEP_WAIT : 0u;
    request.flags |= flw_client_chance(client, 15) ? FALLOW_SLEEP_SAVE_ALL : 0u;
    bool is_plain = flw_client_chance(client, 20);
    fallow_status status = run->put.ops->sleep(run->put.pool, is_plain ? NULL : &request);
    client->op_count++;
    return status;
}

void stress_sleep(struct worker *worker)
{
    struct run *run = worker->run;
    if (run->put.ops->sleep == NULL || pthread_mutex_trylock(&run->sleeper) != 0) {
        return;
    }
    set_quiet(run, true);
    worker->client.is_quiet = true;
    fallow_status status = put_to_sleep(worker);
    bool kept_all = status == FALLOW_ASLEEP && run->settings.faults != 0;
    if (status == FALLOW_OK || kept_all) {
        atomic_fetch_add(&run->sleeps, 1);
        compare_asleep(worker);
        work_quietly(worker);
        compare_asleep(worker);
        wake(worker);
    } else if (status !=
               FALLOW_BUSY) { /* a watcher, a capture, work: the next one may be luckier */
        stress_expect(worker, "sleep", status);
    }
    work_quietly(worker);
    worker->client.is_quiet = false;
    set_quiet(run, false);
    pthread_mutex_unlock(&run->sleeper);
}
