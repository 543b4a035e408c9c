/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one thread allocates, another frees. Between them lies a bounded queue of one producer and
 * one consumer, without a lock, so that what is measured is the allocator.
 */
#include "bench.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define SPINS 256

/* INVARIANT  tail - head <= mask + 1; each index has one writer. */
struct queue {
    void **slots;
    uint64_t mask;
    _Alignas(FLW_BENCH_LINE_BYTES) atomic_uint_fast64_t tail; /* written by the producer */
    _Alignas(FLW_BENCH_LINE_BYTES) atomic_uint_fast64_t head; /* written by the consumer */
};

struct handoff {
    struct queue queue;
    struct flw_bench_loop loop; /* the producer's */
    fallow_stream free_stream;
    uint64_t count;
    _Alignas(FLW_BENCH_LINE_BYTES) uint64_t free_failures;
};

static void pause_a_little(unsigned *spins)
{
    if (++*spins % SPINS == 0) {
        sched_yield();
    }
}

/* The oldest block, in order of allocation. */
static void *queue_pop(struct queue *queue)
{
    unsigned spins = 0;
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    while (atomic_load_explicit(&queue->tail, memory_order_acquire) == head) {
        pause_a_little(&spins);
    }
    void *ptr = queue->slots[head & queue->mask];
    atomic_store_explicit(&queue->head, head + 1, memory_order_release);
    return ptr;
}

static void queue_push(struct queue *queue, void *ptr)
{
    unsigned spins = 0;
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    while (tail - atomic_load_explicit(&queue->head, memory_order_acquire) > queue->mask) {
        pause_a_little(&spins);
    }
    queue->slots[tail & queue->mask] = ptr;
    atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

static void *consume(void *argument)
{
    struct handoff *handoff = argument;
    const struct flw_bench_loop *loop = &handoff->loop;
    uint64_t failures = 0;
    flw_bench_host_pin(1);
    for (uint64_t i = 0; i < handoff->count; i++) {
        void *ptr = queue_pop(&handoff->queue);
        failures += loop->policy->free(loop->pool, ptr, handoff->free_stream) != FALLOW_OK;
    }
    handoff->free_failures = failures;
    return NULL;
}

static uint64_t produce(struct handoff *handoff)
{
    const struct flw_bench_loop *loop = &handoff->loop;
    uint64_t failures = 0;
    for (uint64_t i = 0; i < handoff->count; i++) {
        void *ptr = NULL;
        failures +=
            loop->policy->alloc(loop->pool, loop->steps->steps[i & loop->steps->mask].size_bytes,
                                loop->stream, &ptr) != FALLOW_OK;
        queue_push(&handoff->queue, ptr);
    }
    return failures;
}

static void *produce_pinned(void *argument)
{
    struct handoff *handoff = argument;
    flw_bench_host_pin(0);
    uint64_t *failures = calloc(1, sizeof *failures);
    uint64_t count = produce(handoff);
    if (failures != NULL) {
        *failures = count;
    }
    return failures;
}

/* Both ends in threads of their own: the caller's thread keeps its affinity. */
static bool run_both(struct handoff *handoff, struct flw_bench_report *report, char *message)
{
    pthread_t producer, consumer;
    uint64_t begin = flw_clock_fine_ns();
    if (pthread_create(&consumer, NULL, consume, handoff) != 0) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host refused a thread");
        return false;
    }
    if (pthread_create(&producer, NULL, produce_pinned, handoff) != 0) {
        report->failure_count += produce(handoff); /* the consumer must be served to end */
        pthread_join(consumer, NULL);
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host refused a thread");
        return false;
    }
    void *failures = NULL;
    pthread_join(producer, &failures);
    pthread_join(consumer, NULL);
    flw_bench_report_add(report, "ns_per_op",
                         (double)(flw_clock_fine_ns() - begin) / (double)handoff->count);
    report->failure_count += handoff->free_failures;
    report->failure_count += failures == NULL ? 1 : *(uint64_t *)failures;
    free(failures);
    return true;
}

/* The pair of one thread with the same sizes, to compare with: `count` is its own. */
static double time_pairs(const struct handoff *handoff, uint64_t count,
                         struct flw_bench_report *report)
{
    const struct flw_bench_loop *loop = &handoff->loop;
    uint64_t begin = flw_clock_fine_ns();
    for (uint64_t i = 0; i < count; i++) {
        void *ptr = NULL;
        report->failure_count +=
            loop->policy->alloc(loop->pool, loop->steps->steps[i & loop->steps->mask].size_bytes,
                                loop->stream, &ptr) != FALLOW_OK;
        report->failure_count += loop->policy->free(loop->pool, ptr, loop->stream) != FALLOW_OK;
    }
    return (double)(flw_clock_fine_ns() - begin) / (double)count;
}

static void add_held(const struct flw_bench_bed *bed, struct flw_bench_report *report)
{
    struct flw_bench_usage usage;
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

bool flw_bench_handoff(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       struct flw_bench_report *report, char *message)
{
    struct flw_bench_steps steps = {0};
    struct handoff *handoff = flw_bench_host_lines(1, sizeof *handoff);
    bool is_done = false;
    uint64_t places = 1;
    while (places < options->live_count) {
        places *= 2;
    }
    if (handoff == NULL) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host is out of memory");
        return false;
    }
    handoff->loop = (struct flw_bench_loop){
        .policy = options->policy, .pool = bed->pool, .stream = bed->streams[0], .steps = &steps};
    handoff->free_stream = bed->streams[options->stream_count > 1 ? 1 : 0];
    handoff->queue.mask = places - 1;
    handoff->queue.slots = flw_bench_host_lines(places, sizeof(void *));
    if (handoff->queue.slots == NULL || !flw_bench_steps_init(&steps, options, 1, options->seed)) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the host is out of memory");
        goto done;
    }
    handoff->count = options->count;
    is_done = run_both(handoff, report, message);
    add_held(bed, report);
    if (is_done) {
        double ns = report->values[0].value;
        double pair = time_pairs(handoff, options->warm_count + 1, report);
        flw_bench_report_add(report, "same_thread_ns_per_op", pair);
        flw_bench_report_add(report, "over_same_thread", pair > 0 ? ns / pair : NAN);
    }
done:
    flw_bench_steps_finish(&steps);
    free(handoff->queue.slots);
    free(handoff);
    return is_done;
}
