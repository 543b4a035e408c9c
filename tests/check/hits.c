/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: hits, for hits.py to count under valgrind. Does not: count.
 *
 *   hits turns [planted]    two threads take turns; marks in a page of its own delimit each turn
 *   hits rounds [FOLDER]    rounds of pairs in measured(), published in FOLDER. Each round begins
 *                           with a byte to stdout and ends with one from stdin
 *
 * planted, or a byte 'p': from now on a pair also counts in a variable of both threads. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/driver.h"

#include "fallow/publish.h"

#define MARKS   0x4a5a5a0000ull /* as in hits.py */
#define THREADS 2
#define LIVE    16
#define ROUNDS  20 /* as in hits.py */

struct worker {
    _Alignas(128) pthread_t thread;
    size_t index;
    fallow_stream stream;
    void *slots[LIVE];
    uint64_t random, failures, hits;
};

static struct flw_driver driver;
static fallow_pool *pool;
static pthread_barrier_t turn;
static bool is_planted;
static volatile uint64_t planted;

/* Replace blocks of a few classes: hits once the cache is warm. */
static void run_pairs(struct worker *worker, unsigned count)
{
    static const size_t sizes[] = {512, 4096, 65536, 700};
    for (unsigned i = 0; i < count; i++) {
        worker->random = worker->random * 6364136223846793005ull + 1442695040888963407ull;
        size_t at = (size_t)(worker->random >> 33) % LIVE;
        worker->failures += fallow_free(pool, worker->slots[at], worker->stream) != FALLOW_OK;
        worker->failures +=
            fallow_alloc(pool, sizes[at % 4], worker->stream, &worker->slots[at]) != FALLOW_OK;
        if (is_planted) {
            planted++;
        }
    }
}

static uint64_t hit_count(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    return fallow_pool_get_stats(pool, &stats) == FALLOW_OK ? stats.hit_count : 0;
}

static int judge(const struct worker *worker, uint64_t pairs)
{
    bool is_good = worker->failures == 0 && worker->hits == pairs;
    if (!is_good) {
        fprintf(stderr, "hits: %llu failures, %llu hits of %llu\n",
                (unsigned long long)worker->failures, (unsigned long long)worker->hits,
                (unsigned long long)pairs);
    }
    return !is_good;
}

/* ---- turns ---- */

static void mark(size_t index, size_t what)
{
    volatile uint64_t *marks = (volatile uint64_t *)(uintptr_t)MARKS;
    __asm__ volatile("" : : : "memory");
    marks[8 * (2 * index + what)] = 1;
    __asm__ volatile("" : : : "memory");
}

static void *take_turns(void *argument)
{
    struct worker *worker = argument;
    run_pairs(worker, 800); /* warm */
    for (size_t i = 0; i < THREADS; i++) {
        pthread_barrier_wait(&turn);
        if (i == worker->index) {
            uint64_t before = hit_count();
            mark(worker->index, 0);
            run_pairs(worker, 400);
            mark(worker->index, 1);
            worker->hits = hit_count() - before;
        }
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static int run_turns(void)
{
    static struct worker workers[THREADS];
    int failed = 0;
    if (mmap((void *)(uintptr_t)MARKS, 4096, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
             0) != (void *)(uintptr_t)MARKS ||
        pthread_barrier_init(&turn, NULL, THREADS) != 0) {
        return 1;
    }
    for (size_t i = 0; i < THREADS; i++) {
        CUstream stream = NULL;
        if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
            return 1;
        }
        workers[i].index = workers[i].random = i;
        workers[i].stream = stream;
        if (pthread_create(&workers[i].thread, NULL, take_turns, &workers[i]) != 0) {
            return 1;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        failed |= judge(&workers[i], 400);
    }
    return failed;
}

/* ---- rounds ---- */

/* callgrind counts in this function, in the calling thread. */
__attribute__((noinline)) void measured(struct worker *worker);

void measured(struct worker *worker)
{
    run_pairs(worker, 2000);
}

static int run_rounds(void)
{
    static struct worker worker;
    char byte = 'r';
    run_pairs(&worker, 4000); /* warm */
    uint64_t before = hit_count();
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (write(STDOUT_FILENO, &byte, 1) != 1) {
            return 1;
        }
        measured(&worker);
        if (read(STDIN_FILENO, &byte, 1) != 1) {
            return 1;
        }
        is_planted = byte == 'p';
    }
    worker.hits = hit_count() - before;
    return judge(&worker, (uint64_t)ROUNDS * 2000);
}

int main(int argc, char **argv)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    CUcontext context = NULL;
    fallow_pool_config config;
    fallow_publish_config publishing;
    bool is_turns = argc > 1 && strcmp(argv[1], "turns") == 0;
    is_planted = is_turns && argc > 2;
    fallow_publish_config_init(&publishing);
    publishing.directory = argv[argc - 1];
    fallow_pool_config_init(&config);
    config.driver = "sim";
    if (flw_driver_open(&driver, "sim", message) != FALLOW_OK ||
        driver.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        driver.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        (!is_turns && argc > 2 && fallow_publish_start(&publishing) != FALLOW_OK) ||
        fallow_pool_create(&config, &pool) != FALLOW_OK) {
        fprintf(stderr, "hits: no pool on the simulated device\n");
        return 1;
    }
    int failed = is_turns ? run_turns() : run_rounds();
    fallow_publish_stop();
    return failed;
}
