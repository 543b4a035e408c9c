/* SPDX-License-Identifier: Apache-2.0
 *
 * stress.fork_*: a program forks repeatedly while the threads allocate, free, record, publish and
 * call the driver, with the installed malloc. An allocator's fork handlers stop every thread that
 * needs memory; a later handler that waits for such a thread waits for ever. A watchdog ends a
 * program that hangs.
 *
 *   fork_beside [<part of the name of the file that exports malloc>] */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fallow/publish.h"
#include "fallow/trace.h"
#include "support/sim.h"
#include "support/trim.h"

#define FORKS        150
#define POOL_THREADS 2
#define CALL_THREADS 2
#define WATCHDOG_S   60

static struct flw_sim sim;
static fallow_pool *pool;
static CUcontext context;
static char recording[64];
static atomic_bool stops;
static volatile int fork_number;

static void stop_hanging(int number)
{
    static char line[] = "stands still at fork 000\n";
    int n = fork_number;
    (void)number;
    for (size_t at = sizeof line - 3; at > sizeof line - 6; at--, n /= 10) {
        line[at] = (char)('0' + n % 10);
    }
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
    _exit(1);
}

static void expect(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "fork_beside: %s does not hold at fork %d\n", what, fork_number);
        exit(1);
    }
}
#define EXPECT(expression) expect((expression), #expression)

/* Sizes that miss: growth, trimming, new streams, and so driver calls. */
static void *alloc_and_free(void *argument)
{
    unsigned random = *(const unsigned *)argument;
    while (!atomic_load(&stops)) {
        void *blocks[8] = {NULL};
        for (unsigned i = 0; i < 8; i++) {
            random = random * 1664525u + 1013904223u;
            EXPECT(fallow_alloc(pool, 1u << (8 + random % 18), NULL, &blocks[i]) == FALLOW_OK);
        }
        for (unsigned i = 0; i < 8; i++) {
            EXPECT(fallow_free(pool, blocks[i], NULL) == FALLOW_OK);
        }
        EXPECT(flw_test_trim(pool, 0) == FALLOW_OK);
    }
    return NULL;
}

static void *call_driver(void *argument)
{
    (void)argument;
    EXPECT(sim.cu.cuCtxSetCurrent(context) == CUDA_SUCCESS);
    while (!atomic_load(&stops)) {
        CUdeviceptr blocks[16];
        CUstream stream = NULL;
        void *memory = malloc(4096); /* the program's own */
        EXPECT(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        for (unsigned i = 0; i < 16; i++) {
            EXPECT(sim.cu.cuMemAlloc_v2(&blocks[i], 4096) == CUDA_SUCCESS);
        }
        for (unsigned i = 0; i < 16; i++) {
            EXPECT(sim.cu.cuMemFree_v2(blocks[i]) == CUDA_SUCCESS);
        }
        EXPECT(sim.cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
        free(memory);
    }
    return NULL;
}

static void *publish_and_record(void *argument)
{
    (void)argument;
    while (!atomic_load(&stops)) {
        fallow_publish_config publish;
        fallow_record_config record;
        fallow_recorder *recorder = NULL;
        fallow_publish_config_init(&publish);
        publish.directory = ".";
        fallow_record_config_init(&record);
        record.path = recording;
        EXPECT(fallow_publish_start(&publish) == FALLOW_OK);
        EXPECT(fallow_record_start(pool, &record, &recorder) == FALLOW_OK);
        EXPECT(fallow_record_stop(recorder) == FALLOW_OK);
        fallow_publish_stop();
    }
    return NULL;
}

/* The child has memory, no pool and no driver, and ends like any program. */
static void be_child(void)
{
    void *block = NULL, *memory = malloc(100000);
    alarm(WATCHDOG_S);
    bool is_right = memory != NULL && fallow_alloc(pool, 64, NULL, &block) == FALLOW_INVALID_POOL &&
                    sim.cu.cuCtxSetCurrent(context) == CUDA_ERROR_NOT_INITIALIZED;
    free(memory);
    _exit(is_right ? 0 : 3);
}

static void fork_and_wait(void)
{
    int state = 0;
    pid_t child = fork();
    if (child == 0) {
        be_child();
    }
    EXPECT(child > 0 && waitpid(child, &state, 0) == child);
    EXPECT(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

static bool has_malloc_of(const char *file)
{
    Dl_info facts;
    void *function = dlsym(RTLD_DEFAULT, "malloc");
    return function != NULL && dladdr(function, &facts) != 0 &&
           strstr(facts.dli_fname, file) != NULL;
}

static void begin(void)
{
    fallow_pool_config config;
    snprintf(recording, sizeof recording, "fork_beside.%d.ftrace", (int)getpid());
    EXPECT(flw_sim_open(&sim));
    context = flw_sim_begin(&sim, NULL);
    fallow_pool_config_init(&config);
    config.driver = "sim";
    EXPECT(fallow_pool_create(&config, &pool) == FALLOW_OK);
}

int main(int argc, char **argv)
{
    pthread_t threads[POOL_THREADS + CALL_THREADS + 1];
    unsigned seeds[POOL_THREADS], count = 0;
    if (argc == 2 && !has_malloc_of(argv[1])) {
        printf("malloc is not that of %s: nothing checked\n", argv[1]);
        return 77;
    }
    signal(SIGALRM, stop_hanging);
    alarm(WATCHDOG_S);
    begin();
    for (unsigned i = 0; i < POOL_THREADS; i++) {
        seeds[i] = i + 1;
        EXPECT(pthread_create(&threads[count++], NULL, alloc_and_free, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < CALL_THREADS; i++) {
        EXPECT(pthread_create(&threads[count++], NULL, call_driver, NULL) == 0);
    }
    EXPECT(pthread_create(&threads[count++], NULL, publish_and_record, NULL) == 0);
    for (fork_number = 1; fork_number <= FORKS; fork_number++) {
        fork_and_wait();
    }
    atomic_store(&stops, true);
    for (unsigned i = 0; i < count; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    fallow_pool_destroy(pool);
    flw_sim_close(&sim);
    (void)unlink(recording);
    printf("%d forks beside %u threads\n", FORKS, count);
    return 0;
}
