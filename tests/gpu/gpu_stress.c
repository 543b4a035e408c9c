/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random programs of several streams over one pool on a real device, judged by contents: every
 * block holds a value of its own until it is freed. What was allocated twice at a time, or too
 * early, shows as a foreign value. Runs on the simulated device too, with memory behind it. No test
 * framework.
 *
 *   gpu_stress [--device N|sim] [--seed N] [--ops N] [--threads N] [--capture] [--sleep] [--share]
 *              [--segments]
 *
 * Each of --threads has --ops operations, among them renewed streams and trims. --capture, --sleep and
 * --share add rounds of these every thousand or so. --segments: over cuMemAlloc in place of handles.
 *
 * Prints one JSON object. Exit: 0 no foreign value and every round asked for took place, 1 not so, 2
 * bad usage, 77 no such device. Does not: measure time.
 */
#include "gpu_stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool open_device(struct world *world, fallow_pool_config *config)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    CUdevice ordinal = 0;
    struct run on_the_way = {.world = world, .cu = world->cu}, *run = &on_the_way;
    if (flw_driver_open(&world->sim.cu, world->is_sim ? "sim" : NULL, message) != FALLOW_OK) {
        fprintf(stderr, "gpu_stress: %s\n", message);
        return false;
    }
    if (world->is_sim) {
        flw_sim_config settings = flw_sim_config_default(world->seed);
        settings.backed = 1;
        settings.check = 1; /* beside the contents, the order of all accesses */
        settings.device_bytes = 2ull << 30;
        if (!flw_sim_find_controls(&world->sim)) {
            return false;
        }
        world->context = flw_sim_begin(&world->sim, &settings);
        config->driver = "sim";
        return true;
    }
    char *end = NULL;
    config->device = (int)strtol(world->device, &end, 10);
    if (end == world->device || *end != '\0' ||
        world->cu->cuDeviceGet(&ordinal, config->device) != CUDA_SUCCESS) {
        fprintf(stderr, "gpu_stress: there is no device '%s'\n", world->device);
        return false;
    }
    MUST(cuDevicePrimaryCtxRetain(&world->context, ordinal));
    MUST(cuCtxSetCurrent(world->context));
    return true;
}

bool open_world(struct world *world)
{
    fallow_pool_config config;
    struct run on_the_way = {.world = world, .cu = &world->sim.cu}, *run = &on_the_way;
    world->cu = &world->sim.cu;
    world->is_sim = strcmp(world->device, "sim") == 0;
    fallow_pool_config_init(&config);
    if (!open_device(world, &config)) {
        return false;
    }
    config.handle_types = world->shares ? FALLOW_HANDLE_FD : 0;
    config.limit_bytes = 1500u << 20;
    config.page_source = world->uses_segments ? FALLOW_PAGES_SEGMENTS : FALLOW_PAGES_AUTOMATIC;
    must_status(run, fallow_pool_create(&config, &world->pool), "fallow_pool_create");
    return true;
}

static void begin(struct run *run, struct world *world, unsigned number)
{
    void *pinned = NULL;
    run->world = world;
    run->cu = world->cu;
    run->pool = world->pool;
    run->random = world->seed + number * 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < STREAMS; i++) {
        MUST(cuStreamCreate(&run->stream[i], CU_STREAM_NON_BLOCKING));
    }
    MUST(cuEventCreate(&run->event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemHostAlloc(&pinned, CHECKS * sizeof(uint32_t), 0));
    run->words = pinned;
}

/* One thread sleeps the pool, and each shares, while the others are between two steps. */
static void quiet_rounds(struct run *run)
{
    struct world *world = run->world;
    if (!world->sleeps && !world->shares) {
        return;
    }
    pthread_rwlock_wrlock(&world->quiet);
    if (world->sleeps && run == world->runs) {
        sleep_round(run);
    }
    if (world->shares) {
        share_round(run);
    }
    pthread_rwlock_unlock(&world->quiet);
}

static void *work(void *argument)
{
    struct run *run = argument;
    struct world *world = run->world;
    uint64_t capture_at = 1, quiet_at = 500;
    MUST(cuCtxSetCurrent(world->context));
    while (run->done < world->ops) {
        pthread_rwlock_rdlock(&world->quiet);
        step(run);
        if (world->captures && run->done >= capture_at) {
            capture_round(run);
            capture_at = run->done + 800;
        }
        pthread_rwlock_unlock(&world->quiet);
        if (run->done >= quiet_at) {
            quiet_rounds(run);
            quiet_at = run->done + 1000;
        }
    }
    pthread_rwlock_rdlock(&world->quiet);
    while (run->count > 0) {
        free_block(run, run->count - 1);
    }
    compare(run);
    pthread_rwlock_unlock(&world->quiet);
    return NULL;
}

static void run_threads(struct world *world)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&world->quiet, &attributes);
    for (unsigned i = 0; i < world->thread_count; i++) {
        begin(&world->runs[i], world, i);
    }
    for (unsigned i = 0; i < world->thread_count; i++) {
        if (pthread_create(&world->runs[i].thread, NULL, work, &world->runs[i]) != 0) {
            fprintf(stderr, "gpu_stress: no thread\n");
            exit(1);
        }
    }
    for (unsigned i = 0; i < world->thread_count; i++) {
        pthread_join(world->runs[i].thread, NULL);
    }
}

/* True: nothing foreign was seen, and what was asked for took place. */
static bool report(struct world *world)
{
    fallow_stats stats;
    struct run *run = world->runs;
    unsigned captures = atomic_load(&world->capture_count),
             sleeps = atomic_load(&world->sleep_count), shares = atomic_load(&world->share_count),
             unshared = atomic_load(&world->unshared_count);
    for (unsigned i = 1; i < world->thread_count; i++) {
        run->done += world->runs[i].done;
        run->allocs += world->runs[i].allocs;
        run->mismatches += world->runs[i].mismatches;
        run->refusals += world->runs[i].refusals;
    }
    fallow_stats_init(&stats);
    must_status(run, fallow_pool_get_stats(world->pool, &stats), "fallow_pool_get_stats");
    printf(
        "{\"simulated\":%s,\"seed\":%llu,\"threads\":%u,\"operations\":%llu,\"segments\":%s,\"captures\":%u,"
        "\"sleeps\":%u,\"shares\":%u,\"shares_not_supported\":%u,\"allocations\":%llu,"
        "\"foreign_values\":%llu,\"refusals\":%llu,\"steals\":%llu,\"remaps\":%llu,"
        "\"peak_reserved_bytes\":%llu,\"peak_requested_bytes\":%llu}\n",
        flw_sim_find_controls(&world->sim) ? "true" : "false", (unsigned long long)world->seed,
        world->thread_count, (unsigned long long)run->done,
        stats.page_source == FALLOW_PAGES_SEGMENTS ? "true" : "false", captures, sleeps, shares,
        unshared, (unsigned long long)run->allocs, (unsigned long long)run->mismatches,
        (unsigned long long)run->refusals, (unsigned long long)stats.steal_count,
        (unsigned long long)stats.remap_count, (unsigned long long)stats.peak_reserved_bytes,
        (unsigned long long)stats.peak_requested_bytes);
    bool has_all = (!world->captures || captures > 0) && (!world->sleeps || sleeps > 0) &&
                   (!world->shares || shares + unshared > 0) &&
                   (!world->uses_segments || stats.page_source == FALLOW_PAGES_SEGMENTS);
    return run->mismatches == 0 && stats.live_count == 0 && has_all;
}

static bool parse(struct world *world, int count, char **words, char ***import)
{
    for (int i = 1; i < count; i++) {
        bool has_value = i + 1 < count;
        if (strcmp(words[i], "--capture") == 0) {
            world->captures = true;
        } else if (strcmp(words[i], "--sleep") == 0) {
            world->sleeps = true;
        } else if (strcmp(words[i], "--share") == 0) {
            world->shares = true;
        } else if (strcmp(words[i], "--segments") == 0) {
            world->uses_segments = true;
        } else if (has_value && strcmp(words[i], "--device") == 0) {
            world->device = words[++i];
        } else if (has_value && strcmp(words[i], "--seed") == 0) {
            world->seed = strtoull(words[++i], NULL, 0);
        } else if (has_value && strcmp(words[i], "--ops") == 0) {
            world->ops = strtoull(words[++i], NULL, 0);
        } else if (has_value && strcmp(words[i], "--threads") == 0) {
            world->thread_count = (unsigned)strtoul(words[++i], NULL, 10);
        } else if (i + 5 < count && strcmp(words[i], "--import") == 0) { /* from this program */
            *import = &words[i + 1];
            world->shares = true;
            i += 5;
        } else {
            fprintf(stderr, "gpu_stress: '%s' is not understood; see the head of the source\n",
                    words[i]);
            return false;
        }
    }
    if (world->thread_count == 0 || world->thread_count > MOST_THREADS) {
        fprintf(stderr, "gpu_stress: --threads is 1 to %d\n", MOST_THREADS);
        return false;
    }
    return true;
}

int main(int count, char **words)
{
    static struct world state;
    struct world *world = &state;
    char **import = NULL;
    *world = (struct world){.device = "0",
                            .program = words[0],
                            .seed = (uint64_t)time(NULL),
                            .ops = 20000,
                            .thread_count = 1};
    if (!parse(world, count, words, &import)) {
        return 2;
    }
    if (import != NULL) {
        return import_child(world, import);
    }
    world->runs = calloc(world->thread_count, sizeof *world->runs);
    if (world->runs == NULL || !open_world(world)) {
        return 77;
    }
    run_threads(world);
    bool is_clean = report(world);
    fallow_pool_destroy(world->pool);
    is_clean &= !world->is_sim || flw_sim_print_violations(&world->sim) == 0;
    return is_clean ? 0 : 1;
}
