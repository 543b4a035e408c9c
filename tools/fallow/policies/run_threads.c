/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the threaded replay: one thread a stream of the trace, each doing its stream's ops in
 * order. Every block's order is kept: a use or a free waits until the block has been allocated, a
 * free until every use before it was announced. No thread runs more than WINDOW ops ahead of the
 * slowest, so that what is live stays near what the trace says. Progress is sure: the unfinished op
 * that comes first in the trace waits for nothing.
 *
 * Synchronization: block_states: release by the thread that allocated, acquire by users and freers;
 * use_counts: release increments, acquire by the freer; positions: relaxed, a hint with a bound.
 */
#include "policies/run.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/bits.h"

#include "common/tool_host.h"

#define WINDOW       4096
#define LOOK_EVERY   64 /* ops between two looks at the others' positions */
#define STATE_UNBORN 0
#define STATE_LIVE   1
#define STATE_FAILED 2
#define SPINS        64

enum gate {
    GATE_WAIT,
    GATE_OPEN,
    GATE_SHUT
};

struct line {
    _Alignas(FLW_LINE_PAIR) _Atomic size_t position; /* index of the op that the thread is at */
};

struct crew {
    struct flw_run *run;
    _Atomic uint8_t *block_states;
    _Atomic uint8_t *use_counts;
    struct line *lines;
    size_t thread_count;
    _Atomic uint64_t failure_count, refused_count, first_failure_bytes;
    _Atomic bool has_lost_device;
    _Atomic int gate;
};

struct worker {
    struct crew *crew;
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

static uint8_t wait_until_allocated(struct crew *crew, uint32_t block)
{
    unsigned spins = 0;
    uint8_t state;
    while ((state = atomic_load_explicit(&crew->block_states[block], memory_order_acquire)) ==
           STATE_UNBORN) {
        pause_a_moment(&spins);
    }
    return state;
}

static void allocate(struct crew *crew, const struct flw_op *op)
{
    struct flw_run *run = crew->run;
    const struct flw_device *device = run->setup->device;
    uint64_t address = 0;
    if (!run->policy->alloc(run->self, op, &address)) {
        if (atomic_fetch_add_explicit(&crew->failure_count, 1, memory_order_relaxed) == 0) {
            atomic_store_explicit(&crew->first_failure_bytes, op->size_bytes, memory_order_relaxed);
        }
        atomic_store_explicit(&crew->block_states[op->block], STATE_FAILED, memory_order_release);
        return;
    }
    if (device->has_work &&
        !flw_device_put_work(device, op->stream, address, op->size_bytes, true)) {
        atomic_store_explicit(&crew->has_lost_device, true, memory_order_relaxed);
    }
    run->addresses[op->block] = address;
    atomic_store_explicit(&crew->block_states[op->block], STATE_LIVE, memory_order_release);
}

static void use(struct crew *crew, const struct flw_op *op)
{
    struct flw_run *run = crew->run;
    if (wait_until_allocated(crew, op->block) == STATE_LIVE) {
        uint64_t address = run->addresses[op->block];
        if (!flw_run_put_use(run, op, address)) {
            atomic_store_explicit(&crew->has_lost_device, true, memory_order_relaxed);
        }
        if (run->policy->use != NULL && !run->policy->use(run->self, op, address)) {
            atomic_fetch_add_explicit(&crew->refused_count, 1, memory_order_relaxed);
        }
    }
    uint8_t count = atomic_load_explicit(&crew->use_counts[op->block], memory_order_relaxed);
    while (count != UINT8_MAX && !atomic_compare_exchange_weak_explicit(
                                     &crew->use_counts[op->block], &count, (uint8_t)(count + 1),
                                     memory_order_release, memory_order_relaxed)) {
    }
}

static void take_back(struct crew *crew, const struct flw_op *op)
{
    struct flw_run *run = crew->run;
    unsigned spins = 0;
    bool is_live = wait_until_allocated(crew, op->block) == STATE_LIVE;
    while (atomic_load_explicit(&crew->use_counts[op->block], memory_order_acquire) <
           op->use_count) {
        pause_a_moment(&spins);
    }
    if (is_live) {
        uint64_t address = run->addresses[op->block];
        run->addresses[op->block] = 0;
        if (op->kind == FLW_OP_FREE_ELSEWHERE && !flw_run_order_free(run, op)) {
            atomic_store_explicit(&crew->has_lost_device, true, memory_order_relaxed);
        }
        if (!run->policy->free(run->self, op, address)) {
            atomic_fetch_add_explicit(&crew->refused_count, 1, memory_order_relaxed);
        }
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

/* Ops are shared out by stream; segment events and the clock's rest go with the first thread. */
static bool is_mine(const struct worker *worker, const struct flw_op *op)
{
    if (op->kind <= FLW_OP_USE) {
        return op->stream == worker->stream;
    }
    return worker->stream == 0;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct crew *crew = worker->crew;
    const struct flw_program *program = crew->run->setup->program;
    const struct flw_device *device = crew->run->setup->device;
    if (!pass_gate(crew)) {
        return NULL;
    }
    if (!flw_device_enter(device)) {
        atomic_store_explicit(&crew->has_lost_device, true, memory_order_relaxed);
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (i % LOOK_EVERY == 0) {
            atomic_store_explicit(&crew->lines[worker->stream].position, i, memory_order_relaxed);
            wait_for_the_slowest(crew, i);
        }
        if (!is_mine(worker, op)) {
            continue;
        }
        if (device->has_clock && op->advance_units != 0) {
            device->advance(op->advance_units);
        }
        if (op->kind == FLW_OP_ALLOC) {
            allocate(crew, op);
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            take_back(crew, op);
        } else if (op->kind == FLW_OP_USE) {
            use(crew, op);
        }
    }
    atomic_store_explicit(&crew->lines[worker->stream].position, program->op_count,
                          memory_order_relaxed);
    return NULL;
}

/* No thread begins before all have been started: a missing thread would be waited for for ever.
 */
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

static void copy_results(struct crew *crew)
{
    struct flw_run *run = crew->run;
    if (run->failure_count == 0) {
        run->first_failure_bytes = atomic_load(&crew->first_failure_bytes);
    }
    run->failure_count += atomic_load(&crew->failure_count);
    run->refused_count += atomic_load(&crew->refused_count);
    run->has_lost_device |= atomic_load(&crew->has_lost_device);
}

bool flw_run_threaded(struct flw_run *run, char *message)
{
    const struct flw_program *program = run->setup->program;
    size_t count = program->stream_count;
    struct crew crew = {.run = run, .thread_count = count};
    struct worker *workers = flw_host_alloc(count, sizeof *workers);
    void *lines = flw_host_alloc(count + 1, sizeof(struct line));
    crew.block_states = flw_host_alloc(program->block_count, sizeof *crew.block_states);
    crew.use_counts = flw_host_alloc(program->block_count, sizeof *crew.use_counts);
    crew.lines = (struct line *)(uintptr_t)flw_align_up((uint64_t)(uintptr_t)lines, FLW_LINE_PAIR);
    for (size_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.crew = &crew, .stream = (uint16_t)i};
    }
    bool is_done = start_and_join(&crew, workers);
    if (!is_done) {
        snprintf(message, FLW_RUN_MESSAGE_BYTES,
                 "the system refused to start %zu threads; replay without --threads", count);
    }
    copy_results(&crew);
    flw_host_free(workers);
    flw_host_free(lines);
    flw_host_free(crew.block_states);
    flw_host_free(crew.use_counts);
    return is_done;
}
