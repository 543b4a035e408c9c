/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a process for `fallow top` to look at: pools on the simulated device, used by threads on
 * several streams, published. Does not: test anything; the process executes the commands on standard input, a word a
 * line, and answers each on standard output:
 *
 *   stats   fallow_pool_get_stats of each pool, "pool.name value" a line, then "end"
 *   work    every thread allocates and frees, until "rest"; answered when all have begun
 *   rest    the threads stop; answered when all are quiet
 *   record PATH   the first pool is recorded from now on, with call stacks
 *   keep    two functions allocate from that pool, one 5 blocks of 3 MiB, one 7 of 1 MiB
 *   drop    two of the 3 MiB blocks are freed
 *   stop    the recording ends, and all these blocks are freed
 *   lease   an arena of the first pool leases 1 MiB; "end" destroys the arena
 *   quit    destroy the pools and end
 *   exit    abandon the pools and call exit()
 *
 *   top_target [DIRECTORY [POOLS]]      where to publish (/dev/shm); how many pools (2)
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "fallow/arena.h"
#include "fallow/publish.h"
#include "fallow/trace.h"
#include "publish/stats_page.h"

#define MOST_POOLS 64
#define THREADS    3
#define KEPT       24

struct worker {
    pthread_t thread;
    unsigned index;
    CUstream streams[2];
    void *kept[MOST_POOLS][KEPT];
    uint64_t random;
};

static fallow_pool *pools[MOST_POOLS];
static unsigned pool_count = 2;
static CUcontext context;
static struct flw_driver driver;
static pthread_barrier_t barrier;
static atomic_bool rests, ends;
static fallow_recorder *recorder;
static void *many[5], *few[7];
static fallow_arena *arena;
static fallow_layout *layout;
static fallow_lease *leased;

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static void must(bool is_ok, const char *what)
{
    if (!is_ok) {
        fprintf(stderr, "top_target: %s failed\n", what);
        exit(1);
    }
}

/* Small blocks and runs: one in, one out. A size is fixed by the slot, so the same bytes are
 * allocated whenever all are quiet. */
static void step(struct worker *worker, unsigned pool)
{
    uint64_t random = next(&worker->random);
    unsigned at = (unsigned)(random % KEPT);
    size_t size = at % 8 == 7 ? (size_t)(at + 1) << 18 : (size_t)(at + 1) * 700;
    CUstream stream = worker->streams[at % 2];
    must(fallow_free(pools[pool], worker->kept[pool][at], stream) == FALLOW_OK, "free");
    must(fallow_alloc(pools[pool], size, stream, &worker->kept[pool][at]) == FALLOW_OK, "alloc");
}

static void take_steps(struct worker *worker)
{
    for (unsigned i = 0; i < 64 * pool_count; i++) {
        step(worker, i % pool_count);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    must(driver.cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
    pthread_barrier_wait(&barrier); /* no thread may begin after an exit of the process */
    while (true) {
        pthread_barrier_wait(&barrier); /* work, or end */
        if (atomic_load(&ends)) {
            break;
        }
        take_steps(worker);
        pthread_barrier_wait(&barrier); /* every pool has allocated something */
        while (!atomic_load(&rests)) {
            take_steps(worker);
        }
        pthread_barrier_wait(&barrier); /* quiet */
    }
    for (unsigned p = 0; p < pool_count; p++) {
        for (unsigned i = 0; i < KEPT; i++) {
            must(fallow_free(pools[p], worker->kept[p][i], worker->streams[i % 2]) == FALLOW_OK,
                 "last free");
        }
    }
    return NULL;
}

static void print_stats(void)
{
    for (unsigned p = 0; p < pool_count; p++) {
        fallow_stats stats;
        fallow_stats_init(&stats);
        must(fallow_pool_get_stats(pools[p], &stats) == FALLOW_OK, "stats");
#define PUT_POOL(name)
#define PUT_STATS(name)             printf("%u." #name " %llu\n", p, (unsigned long long)stats.name);
#define X(name, source, kind, help) PUT_##source(name)
        FLW_STATS_PAGE_VALUES(X)
#undef X
    }
    puts("end");
}

/* ---- distinguished in a recording: the allocating functions */

static void record(const char *path)
{
    fallow_record_config config;
    fallow_record_config_init(&config);
    config.path = path;
    config.stack_depth = 32; /* under ThreadSanitizer the library has many frames of its own */
    must(fallow_record_start(pools[0], &config, &recorder) == FALLOW_OK, "fallow_record_start");
}

static __attribute__((noinline)) void keep_many(void)
{
    for (unsigned i = 0; i < sizeof many / sizeof *many; i++) {
        must(fallow_alloc(pools[0], 3 << 20, NULL, &many[i]) == FALLOW_OK, "alloc");
    }
}

static __attribute__((noinline)) void keep_few(void)
{
    for (unsigned i = 0; i < sizeof few / sizeof *few; i++) {
        must(fallow_alloc(pools[0], 1 << 20, NULL, &few[i]) == FALLOW_OK, "alloc");
    }
}

static void drop(void **blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        must(fallow_free(pools[0], blocks[i], NULL) == FALLOW_OK, "free");
        blocks[i] = NULL;
    }
}

static void lease(void)
{
    const fallow_region region = {.name = "out", .size_bytes = 1 << 20};
    fallow_arena_config config;
    fallow_arena_config_init(&config);
    config.name = "decode\tof lane 0";
    must(fallow_layout_create(&region, 1, &layout) == FALLOW_OK, "fallow_layout_create");
    must(fallow_arena_create(pools[0], &config, &arena) == FALLOW_OK, "fallow_arena_create");
    must(fallow_lease_begin(arena, layout, NULL, &leased) == FALLOW_OK, "fallow_lease_begin");
}

/* Flush the recording, so that `fallow top` reads all events so far. */
static void flush_recording(void)
{
    must(fallow_record_dump(recorder, NULL) == FALLOW_OK, "fallow_record_dump");
}

static void open_pools(void)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    fallow_pool_config config;
    must(flw_driver_open(&driver, "sim", message) == FALLOW_OK, "opening the simulated driver");
    must(driver.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             driver.cuCtxSetCurrent(context) == CUDA_SUCCESS,
         "the context");
    fallow_pool_config_init(&config);
    config.driver = "sim";
    for (unsigned p = 0; p < pool_count; p++) {
        config.limit_bytes = (size_t)(p + 1) << 30;
        must(fallow_pool_create(&config, &pools[p]) == FALLOW_OK, "create");
    }
}

static void start_workers(struct worker *workers)
{
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (unsigned t = 0; t < THREADS; t++) {
        workers[t].index = t;
        workers[t].random = t + 1;
        for (unsigned s = 0; s < 2; s++) { /* the second one is everybody's */
            if (s == 1 && t > 0) {
                workers[t].streams[s] = workers[0].streams[s];
            } else {
                must(driver.cuStreamCreate(&workers[t].streams[s], CU_STREAM_NON_BLOCKING) ==
                         CUDA_SUCCESS,
                     "cuStreamCreate");
            }
        }
        must(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0, "a thread");
    }
    pthread_barrier_wait(&barrier);
}

static void complain(void *nothing, fallow_log_level level, const char *line)
{
    (void)nothing;
    (void)level;
    fprintf(stderr, "top_target: %s\n", line);
}

/* False: end. */
static bool obey(const char *word, bool *works)
{
    if (strcmp(word, "stats") == 0) {
        print_stats();
    } else if (strcmp(word, "work") == 0 && !*works) {
        atomic_store(&rests, false);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        *works = true;
        puts("works");
    } else if (strcmp(word, "rest") == 0 && *works) {
        atomic_store(&rests, true);
        pthread_barrier_wait(&barrier);
        *works = false;
        puts("rests");
    } else if (strncmp(word, "record ", 7) == 0) {
        record(word + 7);
        puts("records");
    } else if (strcmp(word, "keep") == 0) {
        keep_many();
        keep_few();
        flush_recording();
        puts("kept");
    } else if (strcmp(word, "drop") == 0) {
        drop(many, 2);
        flush_recording();
        puts("dropped");
    } else if (strcmp(word, "stop") == 0) {
        must(fallow_record_stop(recorder) == FALLOW_OK, "fallow_record_stop");
        drop(many + 2, sizeof many / sizeof *many - 2);
        drop(few, sizeof few / sizeof *few);
        puts("stopped");
    } else if (strcmp(word, "lease") == 0) {
        lease();
        puts("leased");
    } else if (strcmp(word, "end") == 0) {
        must(fallow_lease_end(leased, NULL) == FALLOW_OK, "fallow_lease_end");
        fallow_arena_destroy(arena);
        fallow_layout_destroy(layout);
        puts("ended");
    } else if (strcmp(word, "exit") == 0) {
        for (unsigned p = 0; p < pool_count; p++) {
            fallow_pool_abandon(pools[p]);
        }
        exit(0);
    }
    return strcmp(word, "quit") != 0;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    fallow_publish_config config;
    char word[64];
    bool works = false;
    fallow_publish_config_init(&config);
    config.directory = argc > 1 ? argv[1] : NULL;
    config.log = complain;
    pool_count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : pool_count;
    must(pool_count <= MOST_POOLS, "so many pools");
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_pools();
    start_workers(workers);
    must(fallow_publish_start(&config) == FALLOW_OK, "fallow_publish_start");
    puts("ready");
    while (fgets(word, sizeof word, stdin) != NULL) {
        word[strcspn(word, "\n")] = '\0';
        if (!obey(word, &works)) {
            break;
        }
    }
    if (works) {
        (void)obey("rest", &works);
    }
    atomic_store(&ends, true);
    pthread_barrier_wait(&barrier);
    for (unsigned t = 0; t < THREADS; t++) {
        pthread_join(workers[t].thread, NULL);
    }
    for (unsigned p = 0; p < pool_count; p++) {
        fallow_pool_destroy(pools[p]);
    }
    fallow_publish_stop();
    return 0;
}
