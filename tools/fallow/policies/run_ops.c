/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ops of a run: by one thread in the order of the trace, or by one thread for each stream of the trace.
 *
 * Each thread does its stream's ops in order. Every block's order is kept: a use or a free waits until the block has
 * been allocated, a free until every use before it was announced. No thread runs more than WINDOW ops ahead of the
 * slowest, so that the live bytes stay near those of the trace. Progress is certain: the unfinished op that is first in
 * the trace waits for nothing.
 *
 * Synchronization: are_born: release by the thread that allocated, acquire by users and freers; use_counts: release
 * increments, acquire by the freer; positions: relaxed, a hint with a bound.
 */
#include "policies/run.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/bits.h"

#include "common/machine.h"
#include "common/tool_host.h"

#define WINDOW     4096
#define LOOK_EVERY 64 /* ops between two looks at the others' positions */
#define SPINS      64

/* ---- one op ---- */

static void record_sample(struct flw_run *run, uint64_t begin_ticks, bool is_free)
{
    uint32_t ticks = (uint32_t)flw_min(flw_ticks() - begin_ticks, UINT32_MAX);
    if (is_free) {
        run->samples[run->sample_capacity - ++run->free_sample_count] = ticks;
    } else {
        run->samples[run->alloc_sample_count++] = ticks;
    }
}

static void do_alloc(struct flw_run *run, const struct flw_op *op, bool is_timed)
{
    uint64_t address = 0;
    uint64_t begin = is_timed ? flw_ticks() : 0;
    bool is_live = run->policy->alloc(run->self, op, &address);
    if (is_timed) {
        record_sample(run, begin, false);
    }
    if (FLW_UNLIKELY(!is_live)) {
        run->first_failure_bytes =
            run->failure_count == 0 ? op->size_bytes : run->first_failure_bytes;
        run->failure_count++;
        return;
    }
    run->addresses[op->block] = address;
    run->live_bytes += op->size_bytes;
    run->peak_bytes = flw_max(run->peak_bytes, run->live_bytes);
    const struct flw_device *device = run->setup->device;
    if (device->has_work &&
        !flw_device_put_work(device, op->stream, address, op->size_bytes, true)) {
        run->has_lost_device = true;
    }
}

/* Return the stream on which the op's block was allocated. */
static uint16_t home_of(const struct flw_run *run, const struct flw_op *op)
{
    return run->setup->trace->blocks[op->block].stream;
}

/* A free on another stream than the allocation's is ordered after that stream, as the contract of a free requires. */
static void do_free(struct flw_run *run, const struct flw_op *op, bool is_timed)
{
    struct flw_device *device = run->setup->device;
    uint64_t address = run->addresses[op->block];
    if (FLW_UNLIKELY(address == 0)) {
        return; /* its allocation failed */
    }
    if (op->kind == FLW_OP_FREE_ELSEWHERE) {
        run->has_lost_device |=
            device->has_work && !flw_device_order(device, home_of(run, op), op->stream);
    }
    uint64_t begin = is_timed ? flw_ticks() : 0;
    bool is_taken = run->policy->free(run->self, op, address);
    if (is_timed) {
        record_sample(run, begin, true);
    }
    run->refused_count += !is_taken;
    run->live_bytes -= op->size_bytes;
    run->addresses[op->block] = 0;
}

/* A use on another stream is ordered after the allocation's stream. */
static void do_use(struct flw_run *run, const struct flw_op *op)
{
    struct flw_device *device = run->setup->device;
    uint64_t address = run->addresses[op->block];
    if (address == 0) {
        return;
    }
    uint16_t home = home_of(run, op);
    run->has_lost_device |=
        device->has_work &&
        ((home != op->stream && !flw_device_order(device, home, op->stream)) ||
         !flw_device_put_work(device, op->stream, address, op->size_bytes, false));
    if (run->policy->use != NULL && !run->policy->use(run->self, op, address)) {
        run->refused_count++;
    }
}

static void do_op(struct flw_run *run, const struct flw_op *op, bool is_timed)
{
    if (op->kind == FLW_OP_ALLOC) {
        do_alloc(run, op, is_timed);
    } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
        do_free(run, op, is_timed);
    } else if (op->kind == FLW_OP_USE) {
        do_use(run, op);
    } else if (run->policy->advance != NULL) {
        run->policy->advance(run->self, op);
    }
}

void flw_run_op(struct flw_run *run, const struct flw_op *op)
{
    do_op(run, op, false);
}

/* ---- one thread ---- */

void flw_run_range(struct flw_run *run, size_t begin, size_t end)
{
    const struct flw_program *program = run->setup->program;
    const struct flw_device *device = run->setup->device;
    const struct flw_run_observer *observer = run->setup->observer;
    for (size_t i = begin; i < end; i++) {
        const struct flw_op *op = &program->ops[i];
        bool is_timed = false;
        if (run->setup->times && i >= program->initial_count && --run->sample_wait == 0) {
            is_timed = true;
            run->sample_wait = run->sample_every;
        }
        if (device->has_clock && op->advance_units != 0) {
            device->advance(op->advance_units);
        }
        do_op(run, op, is_timed);
        if (FLW_UNLIKELY(observer != NULL && observer->after_op != NULL)) {
            observer->after_op(observer->context, run, i);
        }
    }
}

/* ---- several threads ---- */

enum gate {
    GATE_WAIT,
    GATE_OPEN,
    GATE_SHUT
};

struct line {
    _Alignas(FLW_LINE_PAIR) _Atomic size_t position; /* index of the op that the thread is at */
};

struct crew {
    const struct flw_program *program;
    atomic_bool *are_born; /* by block: allocated, or the allocation failed */
    _Atomic uint8_t *use_counts;
    struct line *lines;
    size_t thread_count;
    _Atomic int gate;
};

struct worker {
    struct crew *crew;
    struct flw_run run; /* shares `self` and `addresses`; the counts are the thread's own */
    uint16_t stream;
    pthread_t thread;
};

static void pause_a_moment(unsigned *spins)
{
    if (++*spins >= SPINS) {
        sched_yield();
        *spins = 0;
    }
}

/* Wait until the op's block has been allocated, and for a free until all its uses are announced. */
static void wait_for_block(struct crew *crew, const struct flw_op *op)
{
    unsigned spins = 0;
    unsigned use_count = op->kind == FLW_OP_USE ? 0 : op->use_count;
    while (!atomic_load_explicit(&crew->are_born[op->block], memory_order_acquire) ||
           atomic_load_explicit(&crew->use_counts[op->block], memory_order_acquire) < use_count) {
        pause_a_moment(&spins);
    }
}

static void count_use(_Atomic uint8_t *use_count)
{
    uint8_t count = atomic_load_explicit(use_count, memory_order_relaxed);
    while (count != UINT8_MAX &&
           !atomic_compare_exchange_weak_explicit(use_count, &count, (uint8_t)(count + 1),
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

static void do_in_order(struct worker *worker, const struct flw_op *op)
{
    struct crew *crew = worker->crew;
    if (op->kind != FLW_OP_ALLOC) {
        wait_for_block(crew, op);
    }
    do_op(&worker->run, op, false);
    if (op->kind == FLW_OP_ALLOC) {
        atomic_store_explicit(&crew->are_born[op->block], true, memory_order_release);
    } else if (op->kind == FLW_OP_USE) {
        count_use(&crew->use_counts[op->block]);
    }
}

static void wait_for_the_slowest(struct crew *crew, size_t position)
{
    unsigned spins = 0;
    for (size_t i = 0; i < crew->thread_count; i++) {
        while (atomic_load_explicit(&crew->lines[i].position, memory_order_relaxed) + WINDOW <
               position) {
            pause_a_moment(&spins);
        }
    }
}

static bool pass_gate(struct crew *crew)
{
    unsigned spins = 0;
    int gate;
    while ((gate = atomic_load_explicit(&crew->gate, memory_order_acquire)) == GATE_WAIT) {
        pause_a_moment(&spins);
    }
    return gate == GATE_OPEN;
}

/* Ops are assigned by stream; the first thread also moves the clock of all others. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    struct crew *crew = worker->crew;
    const struct flw_program *program = crew->program;
    const struct flw_device *device = worker->run.setup->device;
    if (!pass_gate(crew)) {
        return NULL;
    }
    worker->run.has_lost_device = !flw_device_enter(device);
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (i % LOOK_EVERY == 0) {
            atomic_store_explicit(&crew->lines[worker->stream].position, i, memory_order_relaxed);
            wait_for_the_slowest(crew, i);
        }
        bool is_request = op->kind <= FLW_OP_USE;
        if (worker->stream != (is_request ? op->stream : 0)) {
            continue;
        }
        if (device->has_clock && op->advance_units != 0) {
            device->advance(op->advance_units);
        }
        if (is_request) {
            do_in_order(worker, op);
        }
    }
    atomic_store_explicit(&crew->lines[worker->stream].position, program->op_count,
                          memory_order_relaxed);
    return NULL;
}

/* No thread begins before all have been started: the others would wait for a missing thread forever. */
static bool start_and_join(struct crew *crew, struct worker *workers)
{
    size_t started = 0;
    while (started < crew->thread_count &&
           pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0) {
        started++;
    }
    bool is_complete = started == crew->thread_count;
    atomic_store_explicit(&crew->gate, is_complete ? GATE_OPEN : GATE_SHUT, memory_order_release);
    for (size_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return is_complete;
}

static void add_counts(struct flw_run *run, const struct flw_run *part)
{
    if (run->failure_count == 0) {
        run->first_failure_bytes = part->first_failure_bytes;
    }
    run->failure_count += part->failure_count;
    run->refused_count += part->refused_count;
    run->has_lost_device |= part->has_lost_device;
}

bool flw_run_threaded(struct flw_run *run, char *message)
{
    const struct flw_program *program = run->setup->program;
    size_t count = program->stream_count;
    struct crew crew = {.program = program, .thread_count = count};
    FLW_LOCAL struct worker *workers = flw_host_alloc(count, sizeof *workers);
    crew.are_born = flw_host_alloc(program->block_count, sizeof *crew.are_born);
    crew.use_counts = flw_host_alloc(program->block_count, sizeof *crew.use_counts);
    crew.lines = flw_host_lines(count, sizeof *crew.lines);
    for (size_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.crew = &crew, .run = *run, .stream = (uint16_t)i};
        workers[i].run.failure_count = workers[i].run.refused_count = 0;
    }
    bool is_done = start_and_join(&crew, workers);
    if (!is_done) {
        snprintf(message, FLW_RUN_MESSAGE_BYTES,
                 "the system refused to start %zu threads; replay without --threads", count);
    }
    for (size_t i = 0; i < count; i++) {
        add_counts(run, &workers[i].run);
    }
    flw_host_free(crew.lines);
    flw_host_free(crew.are_born);
    flw_host_free(crew.use_counts);
    return is_done;
}
