/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the scaling of N pinned threads, each on a stream of its own. In every round one thread and
 * then N run the same number of operations, first with libfallow-null.so, then with the policy; a
 * machine that scales badly at that moment does so for both, and their quotient stays.
 *
 * The workers live as long as the bench: a new thread a round would measure the hand-over of dead
 * threads' caches.
 */
#include "bench/bench.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#define ROUNDS 7

struct worker {
    _Alignas(FLW_HOST_LINE_BYTES) struct flw_bench_loop loop;
    struct flw_bench_steps steps;
    struct crew *crew;
    size_t index;
    pthread_t thread;
    uint64_t failures;
    uint64_t begin_ns, end_ns; /* of the last job */
};

/* What the crew does next. Written under the lock, while no thread works. */
struct crew {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t job;      /* number of the job given last */
    size_t done_count; /* workers that are through with it */
    size_t started_count;
    const struct flw_bench_policy *policy;
    void *pool;
    flw_bench_run *run;
    size_t active; /* workers below this index run */
    uint64_t count;
    bool is_over;
    _Alignas(FLW_HOST_LINE_BYTES) atomic_size_t ready_count; /* the active ones start together */
};

static void start_together(struct crew *crew)
{
    atomic_fetch_add_explicit(&crew->ready_count, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&crew->ready_count, memory_order_acquire) < crew->active) {
        sched_yield();
    }
}

/* The next job's number; waits for it. */
static uint64_t await_job(struct crew *crew, uint64_t last)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->job == last) {
        pthread_cond_wait(&crew->changed, &crew->lock);
    }
    last = crew->job;
    pthread_mutex_unlock(&crew->lock);
    return last;
}

static void say_done(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->done_count++;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct crew *crew = worker->crew;
    uint64_t job = 0;
    flw_machine_pin(worker->index);
    for (;;) {
        job = await_job(crew, job);
        if (crew->is_over) {
            return NULL;
        }
        if (worker->index < crew->active) {
            worker->loop.policy = crew->policy;
            worker->loop.pool = crew->pool;
            start_together(crew);
            worker->begin_ns = flw_clock_fine_ns();
            worker->failures += crew->run(&worker->loop, (struct flw_bench_range){0, crew->count});
            worker->end_ns = flw_clock_fine_ns();
        }
        say_done(crew);
    }
}

static void give_job(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->done_count = 0;
    crew->job++;
    pthread_cond_broadcast(&crew->changed);
    while (!crew->is_over && crew->done_count < crew->started_count) {
        pthread_cond_wait(&crew->changed, &crew->lock);
    }
    pthread_mutex_unlock(&crew->lock);
}

/* Operations per nanosecond of the active workers together. */
static double run_job(struct crew *crew, struct worker *workers, size_t active)
{
    uint64_t begin = UINT64_MAX, end = 0;
    crew->active = active;
    atomic_store_explicit(&crew->ready_count, 0, memory_order_relaxed);
    give_job(crew);
    for (size_t i = 0; i < active; i++) {
        begin = workers[i].begin_ns < begin ? workers[i].begin_ns : begin;
        end = workers[i].end_ns > end ? workers[i].end_ns : end;
    }
    return end <= begin ? 0 : (double)crew->count * (double)active / (double)(end - begin);
}

static void measure(struct crew *crew, struct worker *workers,
                    const struct flw_bench_options *options, const struct flw_bench_bed *bed,
                    struct flw_bench_report *report)
{
    const struct flw_bench_policy *empty = flw_bench_policy_find("null");
    double one_ns[ROUNDS], many_ns[ROUNDS], scaling[ROUNDS], null_scaling[ROUNDS], relative[ROUNDS];
    for (size_t round = 0; round < ROUNDS; round++) {
        crew->policy = empty;
        crew->pool = crew;
        double null_one = run_job(crew, workers, 1);
        double null_many = run_job(crew, workers, options->thread_count);
        crew->policy = options->policy;
        crew->pool = bed->pool;
        double one = run_job(crew, workers, 1);
        double many = run_job(crew, workers, options->thread_count);
        one_ns[round] = 1 / one;
        many_ns[round] = (double)options->thread_count / many;
        scaling[round] = many / one;
        null_scaling[round] = null_many / null_one;
        relative[round] = scaling[round] / null_scaling[round];
    }
    flw_bench_report_add(report, "one_thread_ns_per_op", flw_median(one_ns, ROUNDS));
    flw_bench_report_add(report, "ns_per_op", flw_median(many_ns, ROUNDS));
    flw_bench_report_add(report, "scaling", flw_median(scaling, ROUNDS));
    flw_bench_report_add(report, "null_scaling", flw_median(null_scaling, ROUNDS));
    flw_bench_report_add(report, "relative_scaling", flw_median(relative, ROUNDS));
    flw_bench_report_add(report, "relative_scaling_min", relative[0]); /* sorted */
    flw_bench_report_add(report, "rounds", ROUNDS);
}

static void equip(struct worker *worker, const struct flw_bench_options *options,
                  const struct flw_bench_bed *bed)
{
    worker->loop = (struct flw_bench_loop){.policy = options->policy,
                                           .pool = bed->pool,
                                           .stream = bed->streams[worker->index],
                                           .steps = &worker->steps,
                                           .size_bytes = options->size_bytes};
    worker->loop.slots = flw_host_lines(options->live_count + 1, sizeof(void *));
    worker->loop.slots[options->live_count] = worker->loop.slots; /* the end mark */
    flw_bench_steps_init(&worker->steps, options, options->live_count,
                         options->seed + worker->index);
}

static uint64_t run_and_free(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    /* Slots start empty (free(NULL) succeeds) and end empty, so policies can take turns. The drain
     * is at most 64 calls, against a count of many thousands. */
    uint64_t failures = flw_bench_run_replace(loop, range);
    for (uint64_t i = 0; loop->slots[i] != (void *)loop->slots; i++) {
        failures += loop->policy->free(loop->pool, loop->slots[i], loop->stream) != FALLOW_OK;
        loop->slots[i] = NULL;
    }
    return failures;
}

/* Start one worker; false: the host refused. */
static bool start(struct crew *crew, struct worker *worker, const struct flw_bench_options *options,
                  const struct flw_bench_bed *bed)
{
    worker->crew = crew;
    worker->index = crew->started_count;
    equip(worker, options, bed);
    if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
        return false;
    }
    crew->started_count++;
    return true;
}

static void dismiss(struct crew *crew, struct worker *workers, struct flw_bench_report *report)
{
    crew->is_over = true;
    give_job(crew);
    for (size_t i = 0; i < crew->started_count; i++) {
        pthread_join(workers[i].thread, NULL);
        report->failure_count += workers[i].failures;
    }
}

bool flw_bench_threads(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       struct flw_bench_report *report, char *message)
{
    bool is_ready = true;
    struct crew crew = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER,
                        .policy = options->policy,
                        .pool = bed->pool,
                        .count = options->count / ROUNDS / options->thread_count + 1};
    struct worker *workers = flw_host_lines(options->thread_count, sizeof *workers);
    crew.run = options->sizes == FLW_BENCH_SIZE_ONE ? flw_bench_run_pair : run_and_free;
    for (size_t i = 0; i < options->thread_count && is_ready; i++) {
        is_ready = start(&crew, &workers[i], options, bed);
    }
    if (is_ready) {
        run_job(&crew, workers, options->thread_count); /* warm */
        measure(&crew, workers, options, bed, report);
    } else {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host refused thread %zu of %zu",
                 crew.started_count + 1, options->thread_count);
    }
    dismiss(&crew, workers, report);
    for (size_t i = 0; i < options->thread_count; i++) {
        flw_bench_steps_finish(&workers[i].steps);
        flw_host_free(workers[i].loop.slots);
    }
    flw_host_free(workers);
    return is_ready;
}
