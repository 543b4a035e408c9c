/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one thread allocates, another frees. Between them lies a bounded queue of one producer and
 * one consumer, without a lock, that changes hands a stretch of blocks at a time, so that what is
 * measured is the allocator. What the queue itself costs is measured by turns with it, on the same
 * two threads, and subtracted: so is the loop from the pair that is compared with. Other programs
 * on the host stop one end and let the other wait, for longer than a round lasts. So there are many
 * short rounds, and the figures are the medians of those in which neither thread lost its
 * processor; where these are too few, what a tenth of all rounds keep below.
 *
 * --lockstep: the two never work at once; one fills the queue, sleeps, the other empties it. No
 * loop that waits, so under callgrind the instructions of one block repeat: those with `loop`
 * subtracted are what both halves of it cost.
 */
#include "bench/bench.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>

#define SPINS        16384 /* some ten microseconds: to yield is to be away for a time slice */
#define STRETCH_MOST 32
#define ROUNDS       255
#define LONG_ROUNDS  63 /* lockstep: no one's time, so few ends that are unlike the middle */
#define QUIET_LEAST  15
/* Of the warm blocks, a round, whatever the count. The queue's lap is long since it takes the other
 * thread a while to wake up. */
#define PAIRS_SHARE 64
#define QUEUE_SHARE 8

/* INVARIANT  tail - head <= mask + 1; each index has one writer. */
struct queue {
    void **slots;
    uint64_t mask;
    uint64_t stretch; /* blocks that change hands at once */
    bool is_lockstep;
    sem_t filled, emptied;                                   /* lockstep: whose turn it is */
    _Alignas(FLW_HOST_LINE_BYTES) atomic_uint_fast64_t tail; /* written by the producer */
    _Alignas(FLW_HOST_LINE_BYTES) atomic_uint_fast64_t head; /* written by the consumer */
};

/* What the two threads do next: `count` blocks through the queue. */
struct lap {
    const struct flw_bench_policy *policy;
    void *pool;
    uint64_t count; /* 0: the end */
};

struct handoff {
    struct queue queue;
    const struct flw_bench_options *options;
    const struct flw_bench_device *device;
    struct flw_bench_loop loop; /* the producer's */
    fallow_stream free_stream;
    sem_t start;
    struct lap lap; /* written before `start` is posted */
    struct flw_bench_report *report;
    uint64_t alloc_failures;
    _Alignas(FLW_HOST_LINE_BYTES) uint64_t free_failures;
    uint64_t consumer_switches; /* of its last lap; published with the last block's head */
};

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

static void pause_a_little(unsigned *spins)
{
    if (++*spins % SPINS == 0) {
        sched_yield();
    }
}

/* Until the queue has no more than `most` blocks. */
static void await_room(struct queue *queue, uint64_t tail, uint64_t most)
{
    unsigned spins = 0;
    if (queue->is_lockstep) {
        await(&queue->emptied);
    }
    while (tail - atomic_load_explicit(&queue->head, memory_order_acquire) > most) {
        pause_a_little(&spins);
    }
}

static void await_blocks(struct queue *queue, uint64_t head, uint64_t least)
{
    unsigned spins = 0;
    if (queue->is_lockstep) {
        await(&queue->filled);
    }
    while (atomic_load_explicit(&queue->tail, memory_order_acquire) - head < least) {
        pause_a_little(&spins);
    }
}

static uint64_t next_stretch(const struct queue *queue, uint64_t left)
{
    return left < queue->stretch ? left : queue->stretch;
}

/* Free, in the order of allocation. */
static void run_consumer(struct handoff *handoff)
{
    struct queue *queue = &handoff->queue;
    const struct lap lap = handoff->lap;
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed), failures = 0;
    uint64_t switches = flw_machine_switches();
    for (uint64_t left = lap.count; left > 0;) {
        uint64_t count = next_stretch(queue, left);
        await_blocks(queue, head, count);
        for (uint64_t i = 0; i < count; i++) {
            void *ptr = queue->slots[(head + i) & queue->mask];
            failures += lap.policy->free(lap.pool, ptr, handoff->free_stream) != FALLOW_OK;
        }
        head += count;
        left -= count;
        if (left == 0) {
            handoff->consumer_switches = flw_machine_switches() - switches;
        }
        atomic_store_explicit(&queue->head, head, memory_order_release);
        if (queue->is_lockstep) {
            sem_post(&queue->emptied);
        }
    }
    handoff->free_failures += failures;
}

static void run_producer(struct handoff *handoff)
{
    struct queue *queue = &handoff->queue;
    const struct lap lap = handoff->lap;
    const struct flw_bench_steps *steps = handoff->loop.steps;
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed), failures = 0;
    for (uint64_t left = lap.count; left > 0;) {
        uint64_t count = next_stretch(queue, left);
        await_room(queue, tail, queue->mask + 1 - count);
        for (uint64_t i = 0; i < count; i++) {
            void *ptr = NULL;
            failures += lap.policy->alloc(lap.pool, steps->steps[tail & steps->mask].size_bytes,
                                          handoff->loop.stream, &ptr) != FALLOW_OK;
            queue->slots[tail++ & queue->mask] = ptr;
        }
        left -= count;
        atomic_store_explicit(&queue->tail, tail, memory_order_release);
        if (queue->is_lockstep) {
            sem_post(&queue->filled);
        }
    }
    handoff->alloc_failures += failures;
}

/* Make the context current, as in a thread that launches kernels. */
static void make_context_current(const struct handoff *handoff)
{
    const struct flw_bench_device *device = handoff->device;
    if (device->has_driver) {
        (void)device->driver.cuCtxSetCurrent(device->context);
    }
}

static void *consume(void *argument)
{
    struct handoff *handoff = argument;
    flw_machine_pin(1);
    make_context_current(handoff);
    for (;;) {
        await(&handoff->start);
        if (handoff->lap.count == 0) {
            return NULL;
        }
        run_consumer(handoff);
    }
}

/* Times of one kind, a round each: ns a block. Those of rounds that were not disturbed come
 * first. */
struct series {
    double ns[ROUNDS];
    size_t count, quiet_count;
};

static void series_add(struct series *series, double ns, bool is_quiet)
{
    size_t at = series->count++;
    if (is_quiet) {
        series->ns[at] = series->ns[series->quiet_count];
        at = series->quiet_count++;
    }
    series->ns[at] = ns;
}

/* Sorts, so it is asked once. */
static double series_typical(struct series *series)
{
    if (series->quiet_count >= QUIET_LEAST) {
        return flw_median(series->ns, series->quiet_count);
    }
    (void)flw_median(series->ns, series->count);
    return series->count == 0 ? 0 : series->ns[series->count / 10];
}

/* Both threads, until the last block is freed. */
static void time_lap(struct handoff *handoff, const struct lap *lap, struct series *series)
{
    struct queue *queue = &handoff->queue;
    handoff->lap = *lap;
    sem_post(&handoff->start);
    uint64_t switches = flw_machine_switches(), begin = flw_clock_fine_ns();
    run_producer(handoff);
    await_room(queue, atomic_load_explicit(&queue->tail, memory_order_relaxed), 0);
    uint64_t end = flw_clock_fine_ns();
    bool is_quiet = flw_machine_switches() == switches && handoff->consumer_switches == 0;
    if (queue->is_lockstep) {
        sem_post(&queue->emptied); /* the next lap's first turn */
    }
    series_add(series, (double)(end - begin) / (double)lap->count, is_quiet);
}

/* The pair of one thread with the same sizes. */
static void time_pairs(struct handoff *handoff, const struct lap *lap, struct series *series)
{
    const struct flw_bench_steps *steps = handoff->loop.steps;
    fallow_stream stream = handoff->loop.stream;
    uint64_t switches = flw_machine_switches();
    uint64_t failures = 0, begin = flw_clock_fine_ns();
    for (uint64_t i = 0; i < lap->count; i++) {
        void *ptr = NULL;
        failures += lap->policy->alloc(lap->pool, steps->steps[i & steps->mask].size_bytes, stream,
                                       &ptr) != FALLOW_OK;
        failures += lap->policy->free(lap->pool, ptr, stream) != FALLOW_OK;
    }
    uint64_t end = flw_clock_fine_ns();
    handoff->alloc_failures += failures;
    series_add(series, (double)(end - begin) / (double)lap->count,
               flw_machine_switches() == switches);
}

struct times {
    struct series handoff, queue, pair, loop;
};

static void add_times(struct flw_bench_report *report, struct times *times)
{
    size_t quiet_count = times->handoff.quiet_count, count = times->handoff.count;
    double handoff = series_typical(&times->handoff), queue = series_typical(&times->queue);
    double pair = series_typical(&times->pair), loop = series_typical(&times->loop);
    flw_bench_report_add(report, "ns_per_op", handoff);
    flw_bench_report_add(report, "median_ns_per_op", flw_median(times->handoff.ns, count));
    flw_bench_report_add(report, "queue_ns_per_op", queue);
    flw_bench_report_add(report, "same_thread_ns_per_op", pair);
    flw_bench_report_add(report, "same_thread_loop_ns", loop);
    flw_bench_report_add(report, "over_same_thread",
                         pair > loop ? (handoff - queue) / (pair - loop) : NAN);
    flw_bench_report_add(report, "rounds", (double)count);
    flw_bench_report_add(report, "quiet_rounds", (double)quiet_count);
}

/* Each round times the blocks, the queue without them, the pair, the loop without it. */
static void measure(struct handoff *handoff)
{
    const struct flw_bench_options *options = handoff->options;
    const struct flw_bench_loop *loop = &handoff->loop;
    struct lap blocks = {loop->policy, loop->pool, options->warm_count + 1};
    struct lap pairs = {loop->policy, loop->pool, options->warm_count / PAIRS_SHARE + 1};
    struct lap nothing = {flw_bench_policy_find("loop"), loop->pool, pairs.count};
    struct lap queue = {nothing.policy, loop->pool, options->warm_count / QUEUE_SHARE + 1};
    struct times times = {0}, warm = {0};
    uint64_t planned = options->is_lockstep ? LONG_ROUNDS : ROUNDS;
    time_lap(handoff, &blocks, &warm.handoff);
    time_pairs(handoff, &pairs, &warm.pair);
    for (uint64_t i = 0; i < planned; i++) {
        blocks.count = options->count * (i + 1) / planned - options->count * i / planned;
        if (blocks.count == 0) {
            continue;
        }
        time_lap(handoff, &blocks, &times.handoff);
        time_lap(handoff, &queue, &times.queue);
        time_pairs(handoff, &pairs, &times.pair);
        time_pairs(handoff, &nothing, &times.loop);
    }
    add_times(handoff->report, &times);
}

static void *produce(void *argument)
{
    struct handoff *handoff = argument;
    flw_machine_pin(0);
    make_context_current(handoff);
    measure(handoff);
    handoff->lap.count = 0;
    sem_post(&handoff->start);
    return NULL;
}

/* Both ends in threads of their own: the caller's thread keeps its affinity. */
static bool run_both(struct handoff *handoff, char *message)
{
    pthread_t producer, consumer;
    bool is_done = false;
    if (pthread_create(&consumer, NULL, consume, handoff) != 0) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host refused a thread");
        return false;
    }
    is_done = pthread_create(&producer, NULL, produce, handoff) == 0;
    if (is_done) {
        pthread_join(producer, NULL);
    } else {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host refused a thread");
        sem_post(&handoff->start); /* a lap of nothing is the end */
    }
    pthread_join(consumer, NULL);
    handoff->report->failure_count += handoff->alloc_failures + handoff->free_failures;
    return is_done;
}

static void add_held(const struct flw_bench_bed *bed, struct flw_bench_report *report)
{
    fallow_stats usage;
    bed->policy->get_usage(bed->pool, &usage);
    if (usage.peak_reserved_bytes == UINT64_MAX) {
        return;
    }
    double held = (double)usage.peak_reserved_bytes, live = (double)usage.peak_requested_bytes;
    double over = held - 16.0 * 1024 * 1024;
    flw_bench_report_add(report, "peak_held_over_live", live > 0 ? held / live : NAN);
    flw_bench_report_add(report, "peak_held_less_16mib_over_live",
                         live > 0 ? (over < 0 ? 0 : over) / live : NAN);
}

static void init_queue(struct queue *queue, const struct flw_bench_options *options,
                       uint64_t places)
{
    uint64_t stretch = places < 4 ? 1 : places / 4;
    queue->mask = places - 1;
    queue->is_lockstep = options->is_lockstep;
    queue->stretch = options->is_lockstep     ? places
                     : stretch < STRETCH_MOST ? stretch
                                              : STRETCH_MOST;
    sem_init(&queue->filled, 0, 0);
    sem_init(&queue->emptied, 0, 1);
}

bool flw_bench_handoff(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       struct flw_bench_report *report, char *message)
{
    struct flw_bench_steps steps = {0};
    struct handoff *handoff = flw_host_lines(1, sizeof *handoff);
    uint64_t places = 1;
    while (places < options->live_count) {
        places *= 2;
    }
    handoff->options = options;
    handoff->device = &bed->device;
    handoff->report = report;
    handoff->loop = (struct flw_bench_loop){
        .policy = options->policy, .pool = bed->pool, .stream = bed->streams[0], .steps = &steps};
    handoff->free_stream = bed->streams[options->stream_count > 1 ? 1 : 0];
    sem_init(&handoff->start, 0, 0);
    init_queue(&handoff->queue, options, places);
    handoff->queue.slots = flw_host_lines(places, sizeof(void *));
    flw_bench_steps_init(&steps, options, 1, options->seed);
    bool is_done = run_both(handoff, message);
    add_held(bed, report);
    flw_bench_steps_finish(&steps);
    sem_destroy(&handoff->queue.filled);
    sem_destroy(&handoff->queue.emptied);
    sem_destroy(&handoff->start);
    flw_host_free(handoff->queue.slots);
    flw_host_free(handoff);
    return is_done;
}
