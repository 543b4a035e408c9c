/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shapes of several threads, `threads` and `handoff`. The threads are pinned, and one crew serves all rounds,
 * since new threads in each round would measure the transfer of dead threads' caches.
 *
 * threads: each round runs the same number of operations on one thread and on N, first with libfallow-null.so, then
 * with the policy. A machine that scales badly at that moment does so for both, so their quotient is stable.
 *
 * handoff: one thread allocates, another frees. A lock-free queue of one producer and one consumer transfers up to 32
 * blocks at a time, so that the allocator dominates. The cost of the queue is measured in turn on the same threads and
 * subtracted, as is the cost of the loop from the pair in one thread. Other programs on the host can delay one thread
 * for longer than a round. So there are many short rounds, and the figures are medians of the rounds in which neither
 * thread lost the processor, or, if these are too few, the first decile of all rounds. With --lockstep the threads take
 * turns and sleep in between; no loop waits, so the instructions of a block under callgrind repeat.
 */
#include "bench/bench.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "common/command.h"

/* ---- a crew of threads */

struct crew;

struct worker {
    _Alignas(FLW_HOST_LINE_BYTES) struct flw_bench_loop loop; /* a job finds the worker by it */
    struct crew *crew;
    size_t index;
    pthread_t thread;
    uint64_t failures;
    uint64_t begin_ns, end_ns, switches; /* of the last job */
};

/* The next job is written while all workers wait at the barrier. */
struct crew {
    pthread_barrier_t barrier; /* passed before and after each job */
    struct flw_bench *bench;
    struct worker *workers;
    size_t worker_count;
    flw_bench_run *work; /* NULL: end */
    size_t active;       /* workers below this index work */
    uint64_t count;
    bool is_quiet;       /* no worker lost the processor during the last job */
    struct queue *queue; /* handoff's */
    _Alignas(FLW_HOST_LINE_BYTES) atomic_size_t ready_count; /* the active ones start together */
};

static void start_together(struct crew *crew)
{
    atomic_fetch_add_explicit(&crew->ready_count, 1, memory_order_acq_rel);
    while (!crew->bench->options->is_lockstep && /* a loop that waits would be counted */
           atomic_load_explicit(&crew->ready_count, memory_order_acquire) < crew->active) {
        sched_yield();
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct crew *crew = worker->crew;
    struct flw_bench *bench = crew->bench;
    flw_machine_pin(worker->index);
    if (bench->driver != NULL) { /* as in a thread that launches kernels */
        (void)bench->driver->cuCtxSetCurrent(bench->context);
    }
    for (pthread_barrier_wait(&crew->barrier); crew->work != NULL;
         pthread_barrier_wait(&crew->barrier)) {
        if (worker->index < crew->active) {
            start_together(crew);
            worker->switches = flw_machine_switches();
            worker->begin_ns = flw_clock_fine_ns();
            worker->failures += crew->work(&worker->loop, (struct flw_bench_range){0, crew->count});
            worker->end_ns = flw_clock_fine_ns();
            worker->switches = flw_machine_switches() - worker->switches;
        }
        pthread_barrier_wait(&crew->barrier);
    }
    return NULL;
}

/* Run the job on the first `active` workers. Returns nanoseconds from the first begin to the last end. */
static double run_job(struct crew *crew, size_t active, uint64_t count)
{
    uint64_t begin = UINT64_MAX, end = 0, switches = 0;
    crew->active = active;
    crew->count = count;
    atomic_store_explicit(&crew->ready_count, 0, memory_order_relaxed);
    pthread_barrier_wait(&crew->barrier);
    pthread_barrier_wait(&crew->barrier);
    for (size_t i = 0; i < active; i++) {
        begin = flw_min(begin, crew->workers[i].begin_ns);
        end = flw_max(end, crew->workers[i].end_ns);
        switches += crew->workers[i].switches;
    }
    crew->is_quiet = switches == 0;
    return end <= begin ? 1 : (double)(end - begin);
}

/* Start workers, each with a loop on its own stream. If the host refuses a thread, the command ends. */
static void open_crew(struct crew *crew, struct flw_bench *bench, size_t worker_count,
                      uint64_t slot_count)
{
    const struct flw_bench_options *options = bench->options;
    *crew = (struct crew){.bench = bench, .worker_count = worker_count};
    pthread_barrier_init(&crew->barrier, NULL, (unsigned)worker_count + 1);
    crew->workers = flw_host_lines(worker_count, sizeof *crew->workers);
    for (size_t i = 0; i < worker_count; i++) {
        struct worker *worker = &crew->workers[i];
        worker->crew = crew;
        worker->index = i;
        worker->loop = flw_bench_loop_open(bench, options, slot_count, options->seed + i);
        worker->loop.stream = bench->streams[flw_min(i, bench->stream_count - 1)];
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
            _Exit(flw_refuse(FLW_EXIT_FAILED, "bench %s: the host refused thread %zu of %zu",
                             options->shape, i + 1, worker_count)); /* others wait at the barrier */
        }
    }
}

static void close_crew(struct crew *crew)
{
    crew->work = NULL;
    pthread_barrier_wait(&crew->barrier);
    for (size_t i = 0; i < crew->worker_count; i++) {
        pthread_join(crew->workers[i].thread, NULL);
        crew->bench->failure_count += crew->workers[i].failures;
        flw_bench_loop_close(&crew->workers[i].loop);
    }
    pthread_barrier_destroy(&crew->barrier);
    flw_host_free(crew->workers);
}

static void set_policy(struct crew *crew, const struct flw_bench_policy *policy, void *pool)
{
    for (size_t i = 0; i < crew->worker_count; i++) {
        crew->workers[i].loop.policy = policy;
        crew->workers[i].loop.pool = pool;
    }
}

/* ---- threads */

#define THREAD_ROUNDS 7

/* Slots start empty (free(NULL) succeeds) and end empty, so policies can take turns. The drain is at most 64 calls,
 * against a count of many thousands. */
static uint64_t run_and_free(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct worker *worker = (const void *)loop;
    return flw_bench_run_replace(loop, range) +
           flw_bench_drain(loop, worker->crew->bench->options->live_count);
}

bool flw_bench_threads(struct flw_bench *bench)
{
    enum {
        ONE,
        MANY,
        SCALING,
        NULL_SCALING,
        RELATIVE,
        FIGURES
    };
    static const char *const keys[FIGURES] = {"one_thread_ns_per_op", "ns_per_op", "scaling",
                                              "null_scaling", "relative_scaling"};
    const struct flw_bench_options *options = bench->options;
    size_t threads = options->thread_count;
    uint64_t count = options->count / THREAD_ROUNDS / threads + 1;
    double figures[FIGURES][THREAD_ROUNDS];
    struct crew crew;
    open_crew(&crew, bench, threads, options->live_count);
    crew.work = options->sizes == FLW_BENCH_SIZE_ONE ? flw_bench_run_pair : run_and_free;
    run_job(&crew, threads, count); /* warm */
    for (size_t i = 0; i < THREAD_ROUNDS; i++) {
        set_policy(&crew, flw_bench_policy_find("null"), &crew);
        double null_one = run_job(&crew, 1, count);
        figures[NULL_SCALING][i] = (double)threads * null_one / run_job(&crew, threads, count);
        set_policy(&crew, options->policy, bench->pool);
        figures[ONE][i] = run_job(&crew, 1, count) / (double)count;
        figures[MANY][i] = run_job(&crew, threads, count) / (double)count;
        figures[SCALING][i] = (double)threads * figures[ONE][i] / figures[MANY][i];
        figures[RELATIVE][i] = figures[SCALING][i] / figures[NULL_SCALING][i];
    }
    close_crew(&crew);
    for (size_t i = 0; i < FIGURES; i++) {
        flw_bench_add(bench, keys[i], flw_median(figures[i], THREAD_ROUNDS));
    }
    flw_bench_add(bench, "relative_scaling_min", figures[RELATIVE][0]); /* sorted */
    flw_bench_add(bench, "rounds", THREAD_ROUNDS);
    return true;
}

/* ---- handoff */

#define SPINS        16384 /* some ten microseconds: to yield is to be away for a time slice */
#define STRETCH_MOST 32
#define ROUNDS       255
#define LONG_ROUNDS  63 /* lockstep: few, since the ends of a round differ from the middle */
#define QUIET_LEAST  15
/* Of the warm blocks, a round, whatever the count. */
#define PAIRS_SHARE 64
#define QUEUE_SHARE 8

/* INVARIANT  tail - head <= mask + 1; each index has one writer. */
struct queue {
    void **slots;
    uint64_t mask;
    uint64_t stretch;                                        /* blocks that change hands at once */
    sem_t filled, emptied;                                   /* turns in lockstep */
    _Alignas(FLW_HOST_LINE_BYTES) atomic_uint_fast64_t tail; /* written by the producer */
    _Alignas(FLW_HOST_LINE_BYTES) atomic_uint_fast64_t head; /* written by the consumer */
};

/* Wait until *index is at least `least`; in lockstep, for the turn. */
static void await(atomic_uint_fast64_t *index, uint64_t least, sem_t *turn)
{
    while (turn != NULL && sem_wait(turn) != 0) {
    }
    for (unsigned spins = 1;
         (int64_t)(atomic_load_explicit(index, memory_order_acquire) - least) < 0; spins++) {
        if (spins % SPINS == 0) {
            sched_yield();
        }
    }
}

/* Worker 0 allocates, worker 1 frees in the order of allocation, until the last block is freed. */
static uint64_t exchange(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct worker *worker = (const void *)loop;
    struct queue *queue = worker->crew->queue;
    bool is_producer = worker->index == 0, is_lockstep = worker->crew->bench->options->is_lockstep;
    atomic_uint_fast64_t *own = is_producer ? &queue->tail : &queue->head;
    atomic_uint_fast64_t *other = is_producer ? &queue->head : &queue->tail;
    sem_t *turn = is_producer ? &queue->emptied : &queue->filled;
    sem_t *next = is_producer ? &queue->filled : &queue->emptied;
    uint64_t at = atomic_load_explicit(own, memory_order_relaxed), end = at + range.end,
             failures = 0;
    while (at != end) {
        uint64_t stop = at + flw_min(end - at, queue->stretch);
        await(other, is_producer ? stop - queue->mask - 1 : stop, is_lockstep ? turn : NULL);
        for (; is_producer && at != stop; at++) {
            failures +=
                loop->policy->alloc(loop->pool, loop->steps[at & loop->mask].size_bytes,
                                    loop->stream, &queue->slots[at & queue->mask]) != FALLOW_OK;
        }
        for (; at != stop; at++) {
            failures += loop->policy->free(loop->pool, queue->slots[at & queue->mask],
                                           loop->stream) != FALLOW_OK;
        }
        atomic_store_explicit(own, at, memory_order_release);
        if (is_lockstep) {
            sem_post(next);
        }
    }
    return failures;
}

/* Nanoseconds per block, one value a round; undisturbed rounds first. */
struct series {
    double ns[ROUNDS];
    size_t count, quiet_count;
};

static void run_round(struct crew *crew, flw_bench_run *round, uint64_t count,
                      struct series *series)
{
    crew->work = round;
    double ns = run_job(crew, round == exchange ? 2 : 1, count);
    size_t at = series->count++;
    if (crew->is_quiet) {
        series->ns[at] = series->ns[series->quiet_count];
        at = series->quiet_count++;
    }
    series->ns[at] = ns / (double)count;
}

/* Sorts, so call once. */
static double find_typical(struct series *series)
{
    if (series->quiet_count >= QUIET_LEAST) {
        return flw_median(series->ns, series->quiet_count);
    }
    (void)flw_median(series->ns, series->count);
    return series->count == 0 ? 0 : series->ns[series->count / 10];
}

/* Each round times blocks, the queue alone, pairs in one thread, and their loop alone. */
static void measure_handoff(struct crew *crew)
{
    enum {
        BLOCKS,
        QUEUE,
        PAIRS,
        LOOPS,
        KINDS
    };
    struct flw_bench *bench = crew->bench;
    const struct flw_bench_options *options = bench->options;
    struct series series[KINDS] = {0}, warm = {0};
    double typical[KINDS];
    uint64_t planned = options->is_lockstep ? LONG_ROUNDS : ROUNDS;
    uint64_t pairs = options->warm_count / PAIRS_SHARE + 1;
    run_round(crew, exchange, options->warm_count + 1, &warm);
    run_round(crew, flw_bench_run_pair_drawn, pairs, &warm);
    for (uint64_t i = 0; i < planned; i++) {
        uint64_t count = options->count * (i + 1) / planned - options->count * i / planned;
        if (count == 0) {
            continue;
        }
        run_round(crew, exchange, count, &series[BLOCKS]);
        run_round(crew, flw_bench_run_pair_drawn, pairs, &series[PAIRS]);
        set_policy(crew, flw_bench_policy_find("loop"), bench->pool);
        run_round(crew, exchange, options->warm_count / QUEUE_SHARE + 1, &series[QUEUE]);
        run_round(crew, flw_bench_run_pair_drawn, pairs, &series[LOOPS]);
        set_policy(crew, options->policy, bench->pool);
    }
    for (size_t i = 0; i < KINDS; i++) {
        typical[i] = find_typical(&series[i]);
    }
    double pair = typical[PAIRS] - typical[LOOPS], block = typical[BLOCKS] - typical[QUEUE];
    flw_bench_add(bench, "ns_per_op", typical[BLOCKS]);
    flw_bench_add(bench, "median_ns_per_op", flw_median(series[BLOCKS].ns, series[BLOCKS].count));
    flw_bench_add(bench, "queue_ns_per_op", typical[QUEUE]);
    flw_bench_add(bench, "same_thread_ns_per_op", typical[PAIRS]);
    flw_bench_add(bench, "same_thread_loop_ns", typical[LOOPS]);
    flw_bench_add(bench, "over_same_thread", pair > 0 ? block / pair : NAN);
    flw_bench_add(bench, "rounds", (double)series[BLOCKS].count);
    flw_bench_add(bench, "quiet_rounds", (double)series[BLOCKS].quiet_count);
}

bool flw_bench_handoff(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    struct crew crew;
    uint64_t places = 1;
    while (places < options->live_count) {
        places *= 2;
    }
    struct queue *queue = flw_host_lines(1, sizeof *queue);
    queue->slots = flw_host_lines(places, sizeof(void *));
    queue->mask = places - 1;
    queue->stretch = options->is_lockstep ? places : flw_clamp(places / 4, 1, STRETCH_MOST);
    sem_init(&queue->filled, 0, 0);
    sem_init(&queue->emptied, 0, 1);
    open_crew(&crew, bench, 2, 1); /* steps are for their sizes alone */
    crew.queue = queue;
    crew.workers[1].loop.stream = bench->streams[options->stream_count > 1 ? 1 : 0];
    measure_handoff(&crew);
    close_crew(&crew);
    fallow_stats usage = flw_bench_usage(bench);
    if (usage.peak_reserved_bytes != UINT64_MAX) {
        double held = (double)usage.peak_reserved_bytes, live = (double)usage.peak_requested_bytes;
        double over = fmax(held - 16.0 * 1024 * 1024, 0);
        flw_bench_add(bench, "peak_held_over_live", live > 0 ? held / live : NAN);
        flw_bench_add(bench, "peak_held_less_16mib_over_live", live > 0 ? over / live : NAN);
    }
    sem_destroy(&queue->filled);
    sem_destroy(&queue->emptied);
    flw_host_free(queue->slots);
    flw_host_free(queue);
    return true;
}
