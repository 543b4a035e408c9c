/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that ThreadSanitizer sees through a hit. Two threads write one plain variable of
 * theirs between hits on their own caches, one after the other, and nothing but the hits could
 * order them. That is a race, and a pool with hits that order all threads would hide this race and
 * any of our own. A child does it, and the sanitizer must report it; with a mutex around the
 * variable it must not.
 * Does not: mean anything in a build without the sanitizer; it is none of their tests. */
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fallow/fallow.h"
#include "support/sim.h"

#define HITS    1000
#define REPORTS 66 /* the exit status of a child with a sanitizer report */

/* ---- the child */

static struct {
    struct flw_sim sim;
    CUcontext context;
    fallow_pool *pool;
    CUstream streams[2];
    pthread_barrier_t are_warm;
    pthread_mutex_t mutex;
    bool is_guarded;
    atomic_int turn;  /* relaxed: an order in time, and none to the sanitizer */
    uint64_t planted; /* the race is about this */
} child;

static void must(bool is_right)
{
    if (!is_right) {
        _exit(3);
    }
}

static __attribute__((noinline)) void planted_race(void)
{
    child.planted++;
}

static void hit(CUstream stream)
{
    for (unsigned i = 0; i < HITS; i++) {
        void *block;
        must(fallow_alloc(child.pool, 4096, stream, &block) == FALLOW_OK);
        must(fallow_free(child.pool, block, stream) == FALLOW_OK);
    }
}

static void write_once(void)
{
    if (child.is_guarded) {
        (void)pthread_mutex_lock(&child.mutex);
    }
    planted_race();
    if (child.is_guarded) {
        (void)pthread_mutex_unlock(&child.mutex);
    }
}

static void *hit_and_write(void *argument)
{
    int self = (int)(intptr_t)argument;
    CUstream stream = child.streams[self];
    must(child.sim.cu.cuCtxSetCurrent(child.context) == CUDA_SUCCESS);
    hit(stream); /* the first of them are none: a cache is made and filled */
    (void)pthread_barrier_wait(&child.are_warm);
    while (atomic_load_explicit(&child.turn, memory_order_relaxed) != self) {
        usleep(100);
    }
    hit(stream);
    write_once();
    hit(stream);
    atomic_store_explicit(&child.turn, self + 1, memory_order_relaxed);
    return NULL;
}

static int be_child(bool is_guarded)
{
    fallow_pool_config config;
    pthread_t threads[2];
    fallow_stats stats;
    child.is_guarded = is_guarded;
    must(flw_sim_open(&child.sim));
    child.context = flw_sim_begin(&child.sim, NULL);
    fallow_pool_config_init(&config);
    config.driver = "sim";
    must(fallow_pool_create(&config, &child.pool) == FALLOW_OK);
    (void)pthread_barrier_init(&child.are_warm, NULL, 2);
    (void)pthread_mutex_init(&child.mutex, NULL);
    for (unsigned i = 0; i < 2; i++) {
        must(child.sim.cu.cuStreamCreate(&child.streams[i], CU_STREAM_NON_BLOCKING) ==
             CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 2; i++) {
        must(pthread_create(&threads[i], NULL, hit_and_write, (void *)(intptr_t)i) == 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    fallow_stats_init(&stats);
    must(fallow_pool_get_stats(child.pool, &stats) == FALLOW_OK);
    must(stats.hit_count >= 2u * (3 * HITS - 1)); /* else what ordered the threads was no hit */
    fallow_pool_destroy(child.pool);
    return 0;
}

/* ---- the parent */

static const char *program; /* beside which the simulated driver is looked for */

struct outcome {
    int status;
    char output[1 << 16]; /* the beginning of it */
};

static void run_child(const char *word, struct outcome *out)
{
    int ends[2];
    size_t count = 0;
    char rest[4096];
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        /* Newer sanitizers do not report an access without a stack. */
        (void)setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=0 report_bugs=1 history_size=4", 1);
        (void)execl("/proc/self/exe", program, word, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], rest, sizeof rest)) > 0) {
        size_t room = sizeof out->output - 1 - count,
               kept = (size_t)got < room ? (size_t)got : room;
        memcpy(out->output + count, rest, kept);
        count += kept;
    }
    out->output[count] = 0;
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &out->status, 0), pid);
    assert_true(WIFEXITED(out->status));
    out->status = WEXITSTATUS(out->status);
}

static struct outcome outcome;

static void a_race_between_hits_is_reported(void **state)
{
    run_child("race", &outcome);
    assert_int_equal(outcome.status, REPORTS);
    flw_test_expect_in(outcome.output, "WARNING: ThreadSanitizer: data race");
    flw_test_expect_in(outcome.output, "planted_race");
}

static void nothing_else_is(void **state)
{
    run_child("guarded", &outcome);
    if (outcome.status != 0) {
        print_message("%s\n", outcome.output);
    }
    assert_int_equal(outcome.status, 0);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_race_between_hits_is_reported),
        cmocka_unit_test(nothing_else_is),
    };
    program = words[0];
    if (count > 1) {
        return be_child(strcmp(words[1], "guarded") == 0);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
