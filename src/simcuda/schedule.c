/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the completion of submitted work. Two models behind one function (flw_order_submit):
 *   queues (FLW_SIM_RANDOM, FLW_SIM_HELD)  an operation waits in the stream's queue until the
 *     scheduler picks it. It may be picked when it is the head of the queue and everything that it
 *     waits for is complete; the seed chooses among several such heads. An operation only waits for
 *     earlier ones, so the earliest can always run: nothing hangs.
 *   the clock (FLW_SIM_CLOCK)  a stream has the completion time of the last operation. O(1).
 * Does not: run operations (work.c), or serve queries (stream.c, event.c).
 *
 * The legacy stream: the operations wait for all blocking streams of the context, and theirs for
 * it ("implicit stream which synchronizes with all other streams in the same context except for
 * non-blocking streams"). */
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/order.h"

struct flw_position flw_order_last(const struct flw_stream *stream)
{
    return (struct flw_position){.slot = stream->slot,
                                 .sequence = flw_world.slot[stream->slot].submitted,
                                 .done_ns = stream->done_ns};
}

bool flw_order_is_done(const struct flw_position *position)
{
    if (flw_world_runs_on_clock()) {
        return position->done_ns <= flw_world.clock_ns;
    }
    return flw_world.slot[position->slot].completed >= position->sequence;
}

/* ---- predecessors of an operation ---- */

struct before {
    struct flw_position *positions;
    uint32_t count, capacity;
};

static void come_after(struct before *before, const struct flw_position *position)
{
    if (flw_order_is_done(position)) {
        return;
    }
    FLW_HOST_FIT(before->positions, before->count, before->capacity);
    before->positions[before->count++] = *position;
}

static void come_after_stream(struct flw_stream *stream, struct flw_stream *other,
                              struct before *before)
{
    struct flw_position last = flw_order_last(other);
    if (before != NULL) {
        come_after(before, &last);
    }
    if (flw_check_is_on() && flw_clock_get(&stream->clock, other->slot) < last.sequence) {
        flw_clock_join(&stream->clock, &other->clock);
    }
}

/* Add the legacy stream's order. `before` may be NULL: order clocks only. */
static void tie_legacy(struct flw_stream *stream, struct before *before)
{
    struct flw_context *context = stream->context;
    if (stream->kind == FLW_STREAM_LEGACY) {
        for (struct flw_stream *other = context->streams; other != NULL; other = other->next) {
            if (flw_stream_is_blocking(other)) {
                come_after_stream(stream, other, before);
            }
        }
    } else if (flw_stream_is_blocking(stream) && context->legacy != NULL) {
        come_after_stream(stream, context->legacy, before);
    }
}

static uint64_t next_sequence(struct flw_stream *stream)
{
    uint64_t sequence = ++flw_world.slot[stream->slot].submitted;
    if (flw_check_is_on()) {
        if (stream->host_version != flw_world.host_version) {
            flw_clock_join(&stream->clock, &flw_world.host_clock);
            stream->host_version = flw_world.host_version;
        }
        flw_clock_raise(&stream->clock, stream->slot, sequence);
    }
    return sequence;
}

/* ---- the clock ---- */

static void insert_due(struct flw_operation *operation)
{
    struct flw_operation **place = &flw_world.due;
    while (*place != NULL && (*place)->done_ns <= operation->done_ns) {
        place = &(*place)->next;
    }
    operation->next = *place;
    *place = operation;
}

static uint64_t clock_start(const struct flw_stream *stream)
{
    const struct flw_context *context = stream->context;
    uint64_t start = stream->done_ns;
    if (stream->kind == FLW_STREAM_LEGACY) {
        start = flw_max(start, context->blocking_done_ns);
    } else if (flw_stream_is_blocking(stream)) {
        start = flw_max(start, context->legacy->done_ns);
    }
    return start;
}

static void clock_set_done(struct flw_stream *stream, uint64_t done_ns)
{
    struct flw_context *context = stream->context;
    stream->done_ns = done_ns;
    context->max_done_ns = flw_max(context->max_done_ns, done_ns);
    context->device->max_done_ns = flw_max(context->device->max_done_ns, done_ns);
    if (flw_stream_is_blocking(stream)) {
        context->blocking_done_ns = flw_max(context->blocking_done_ns, done_ns);
    }
}

static uint64_t clock_wait(const struct flw_work *work, uint64_t start)
{
    uint64_t until = 0;
    for (uint32_t i = 0; i < work->wait_count; i++) {
        until = flw_max(until, work->waits[i].done_ns);
    }
    uint64_t idle_from = flw_max(start, flw_world.clock_ns);
    if (until > idle_from) {
        flw_world.stream_wait_ns += until - idle_from;
    }
    return flw_max(start, until);
}

static CUresult submit_on_clock(struct flw_stream *stream, struct flw_work *work)
{
    uint64_t done_ns = clock_start(stream);
    if (work->kind == FLW_WORK_WAIT) {
        done_ns = clock_wait(work, done_ns);
    } else if (work->kind != FLW_WORK_RECORD) {
        done_ns = flw_max(done_ns, flw_world.clock_ns + flw_world.config.lag_ns);
    }
    clock_set_done(stream, done_ns);
    if (flw_check_is_on()) {
        tie_legacy(stream, NULL);
        if (work->waits_clock != NULL) {
            flw_clock_join(&stream->clock, work->waits_clock);
        }
    }
    uint64_t sequence = next_sequence(stream);
    if (work->kind == FLW_WORK_HOST) {
        struct flw_operation *operation = flw_host_get(sizeof *operation);
        operation->work = *work;
        operation->context = stream->context;
        operation->done_ns = done_ns;
        insert_due(operation);
        return CUDA_SUCCESS;
    }
    /* The order of submission is a permitted order, so contents change at once. */
    return flw_work_do(stream, work, sequence, &stream->clock);
}

void flw_order_run_host_function(struct flw_thread *thread, CUhostFn function, void *argument)
{
    thread->is_in_callback = true;
    pthread_mutex_unlock(&flw_world.lock);
    function(argument);
    pthread_mutex_lock(&flw_world.lock);
    thread->is_in_callback = false;
}

void flw_order_advance(struct flw_thread *thread, uint64_t to_ns)
{
    while (flw_world.due != NULL && flw_world.due->done_ns <= to_ns) {
        struct flw_operation *operation = flw_world.due;
        flw_world.due = operation->next;
        /* Work behind the function is not complete before the function returns. */
        flw_world.clock_ns = flw_max(flw_world.clock_ns + 1, operation->done_ns) - 1;
        if (operation->work.callback != NULL) {
            operation->work.callback->status = operation->context->sticky;
        }
        flw_order_run_host_function(thread, operation->work.function, operation->work.argument);
        flw_work_finish(&operation->work);
        free(operation);
    }
    flw_world.clock_ns = flw_max(flw_world.clock_ns, to_ns);
}

/* ---- queues ---- */

static void activate(struct flw_stream *stream)
{
    struct flw_world *w = &flw_world;
    FLW_HOST_FIT(w->active, w->active_count, w->active_capacity);
    stream->active_index = w->active_count;
    w->active[w->active_count++] = stream;
}

static void deactivate(struct flw_stream *stream)
{
    struct flw_stream *last = flw_world.active[--flw_world.active_count];
    flw_world.active[stream->active_index] = last;
    last->active_index = stream->active_index;
}

static void free_operation(struct flw_operation *operation)
{
    flw_work_finish(&operation->work);
    flw_clock_finish(&operation->clock);
    free(operation->waits);
    free(operation);
}

/* Return what the head still waits for, or NULL: it may run. Completed waits are removed. */
static const struct flw_position *head_waits_for(struct flw_stream *stream)
{
    struct flw_operation *head = stream->head;
    while (head->wait_count > 0) {
        const struct flw_position *wait = &head->waits[head->wait_count - 1];
        if (!flw_order_is_done(wait)) {
            return wait;
        }
        head->wait_count--;
    }
    return NULL;
}

static void run_head(struct flw_thread *thread, struct flw_stream *stream)
{
    struct flw_operation *head = stream->head;
    head->is_running = true;
    CUresult result = CUDA_SUCCESS, sticky = stream->context->sticky;
    if (head->work.callback != NULL) {
        head->work.callback->status = sticky;
    }
    if (sticky == CUDA_SUCCESS || head->work.callback != NULL) {
        if (head->work.kind == FLW_WORK_HOST) {
            flw_order_run_host_function(thread, head->work.function, head->work.argument);
        } else {
            result = flw_work_do(stream, &head->work, head->sequence, &head->clock);
        }
    }
    if (result != CUDA_SUCCESS) {
        flw_context_break(stream->context, result);
    }
    flw_world.slot[stream->slot].completed = head->sequence;
    stream->head = head->next;
    stream->depth--;
    if (stream->head == NULL) {
        stream->tail = NULL;
        deactivate(stream);
        if (!stream->is_alive) {
            flw_stream_free(stream);
        }
    }
    free_operation(head);
    pthread_cond_broadcast(&flw_world.changed);
}

static bool may_run(struct flw_stream *stream, bool with_host_functions)
{
    struct flw_operation *head = stream->head;
    if (head->is_running || (head->work.kind == FLW_WORK_HOST && !with_host_functions)) {
        return false;
    }
    return head_waits_for(stream) == NULL;
}

static struct flw_stream *pick(bool with_host_functions)
{
    uint32_t count = flw_world.active_count;
    if (count == 0) {
        return NULL;
    }
    uint32_t start = (uint32_t)(flw_world_random() % count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = start + i < count ? start + i : start + i - count;
        if (may_run(flw_world.active[k], with_host_functions)) {
            return flw_world.active[k];
        }
    }
    return NULL;
}

uint64_t flw_order_step(struct flw_thread *thread, uint64_t n, bool with_host_functions)
{
    uint64_t done = 0;
    while (done < n) {
        struct flw_stream *stream = pick(with_host_functions);
        if (stream == NULL) {
            break;
        }
        run_head(thread, stream);
        done++;
    }
    return done;
}

void flw_order_drift(struct flw_thread *thread, bool with_host_functions)
{
    if (flw_world.config.schedule != FLW_SIM_RANDOM || thread->is_in_callback) {
        return;
    }
    uint64_t dice = flw_world_random();
    if (with_host_functions || (dice & 3) == 0) {
        flw_order_step(thread, 1 + (dice >> 2) % 4, with_host_functions);
    }
}

/* Stop the host until then, in a call that may wait for several things. */
static void stop_host(struct flw_thread *thread, uint64_t until_ns)
{
    struct flw_world *w = &flw_world;
    if (until_ns > w->clock_ns) {
        w->host_wait_count += w->waited_at_call != w->call_count;
        w->waited_at_call = w->call_count;
        w->host_wait_ns += until_ns - w->clock_ns;
    }
    flw_order_advance(thread, until_ns);
}

#define PATIENT_ASKS 32

void flw_order_asked(struct flw_thread *thread, const void *handle)
{
    struct flw_world *w = &flw_world;
    flw_order_drift(thread, true);
    if (w->config.schedule != FLW_SIM_CLOCK) {
        return;
    }
    bool is_again = w->asked_handle == (uintptr_t)handle && w->asked_at_call + 1 == w->call_count;
    w->asked_count = is_again ? w->asked_count + 1 : 1;
    w->asked_handle = (uintptr_t)handle;
    w->asked_at_call = w->call_count;
    if (w->asked_count > PATIENT_ASKS) {
        uint64_t doublings = flw_min(w->asked_count - PATIENT_ASKS, 40);
        if (w->asked_count > PATIENT_ASKS + 1) {
            w->waited_at_call = w->call_count; /* the same wait */
        }
        stop_host(thread, w->clock_ns + (1ull << doublings));
    }
}

static struct flw_stream *stream_of_slot(uint32_t slot)
{
    for (uint32_t i = 0; i < flw_world.active_count; i++) {
        if (flw_world.active[i]->slot == slot) {
            return flw_world.active[i];
        }
    }
    return NULL;
}

/* FLW_SIM_HELD: run no more than the position needs. */
static bool run_towards(struct flw_thread *thread, struct flw_position target)
{
    for (;;) {
        struct flw_stream *stream = stream_of_slot(target.slot);
        if (stream == NULL || stream->head->is_running) {
            return false;
        }
        const struct flw_position *wait = head_waits_for(stream);
        if (wait == NULL) {
            run_head(thread, stream);
            return true;
        }
        target = *wait;
    }
}

static void make_progress(struct flw_thread *thread, const struct flw_position *position)
{
    bool moved = flw_world.config.schedule == FLW_SIM_HELD ? run_towards(thread, *position)
                                                           : flw_order_step(thread, 1, true) > 0;
    if (!moved && !flw_order_is_done(position)) {
        /* Another thread runs a host function that this waits for. */
        pthread_cond_wait(&flw_world.changed, &flw_world.lock);
    }
}

void flw_order_run_until(struct flw_thread *thread, const struct flw_position *position)
{
    struct flw_position target = *position;
    uint64_t generation = flw_world.generation;
    while (flw_world.generation == generation && !flw_order_is_done(&target)) {
        make_progress(thread, &target);
    }
}

void flw_order_wait(struct flw_thread *thread, const struct flw_position *position)
{
    if (flw_world_runs_on_clock()) {
        stop_host(thread, position->done_ns);
    } else {
        flw_order_run_until(thread, position);
    }
    if (flw_check_is_on()) {
        flw_clock_host_saw_position(position);
    }
}

/* Snapshot first: work submitted during the wait is not waited for. */
static uint32_t snapshot(const struct flw_context *context, const struct flw_device *device,
                         struct flw_position **out)
{
    struct flw_position *positions = flw_host_get((flw_world.active_count + 1) * sizeof *positions);
    uint32_t count = 0;
    for (uint32_t i = 0; i < flw_world.active_count; i++) {
        const struct flw_stream *stream = flw_world.active[i];
        if (stream->context == context || stream->context->device == device) {
            positions[count++] = flw_order_last(stream);
        }
    }
    *out = positions;
    return count;
}

static void wait_queues(struct flw_thread *thread, const struct flw_context *context,
                        const struct flw_device *device)
{
    struct flw_position *positions;
    uint32_t count = snapshot(context, device, &positions);
    uint64_t generation = flw_world.generation;
    for (uint32_t i = 0; i < count; i++) {
        while (flw_world.generation == generation && !flw_order_is_done(&positions[i])) {
            make_progress(thread, &positions[i]);
        }
    }
    free(positions);
}

void flw_order_wait_context(struct flw_thread *thread, struct flw_context *context)
{
    /* Dead streams of the context count too: every position so far. */
    struct flw_order_clock seen = {0};
    if (flw_check_is_on()) {
        for (uint32_t i = 0; i < flw_world.slot_count; i++) {
            if (flw_world.slot[i].context_id == context->id) {
                flw_clock_raise(&seen, i, flw_world.slot[i].submitted);
            }
        }
    }
    if (flw_world_runs_on_clock()) {
        stop_host(thread, context->max_done_ns);
    } else {
        wait_queues(thread, context, NULL);
    }
    flw_clock_host_saw(&seen);
    flw_clock_finish(&seen);
}

void flw_order_wait_device(struct flw_thread *thread, struct flw_device *device)
{
    if (flw_world_runs_on_clock()) {
        stop_host(thread, device->max_done_ns);
    } else {
        wait_queues(thread, NULL, device);
    }
}

static CUresult submit_to_queue(struct flw_stream *stream, const struct flw_work *work)
{
    struct before before = {0};
    tie_legacy(stream, &before);
    for (uint32_t i = 0; i < work->wait_count; i++) {
        come_after(&before, &work->waits[i]);
    }
    if (flw_check_is_on() && work->waits_clock != NULL) {
        flw_clock_join(&stream->clock, work->waits_clock);
    }
    struct flw_operation *operation = flw_host_get(sizeof *operation);
    operation->stream = stream;
    flw_work_copy(&operation->work, work);
    operation->sequence = next_sequence(stream);
    operation->waits = before.positions;
    operation->wait_count = before.count;
    if (flw_check_is_on()) {
        flw_clock_copy(&operation->clock, &stream->clock);
    }
    if (stream->tail == NULL) {
        stream->head = operation;
        activate(stream);
    } else {
        stream->tail->next = operation;
    }
    stream->tail = operation;
    stream->depth++;
    return CUDA_SUCCESS;
}

/* A full queue: the call blocks until the device has taken an operation. */
static void make_room(struct flw_thread *thread, struct flw_stream *stream)
{
    if (flw_world_is_mild(FLW_SIM_MILD_QUEUE_DEPTH)) {
        return;
    }
    while (stream->depth >= flw_world.config.queue_depth) {
        struct flw_position head = {.slot = stream->slot, .sequence = stream->head->sequence};
        make_progress(thread, &head);
    }
}

CUresult flw_order_submit(struct flw_stream *stream, struct flw_work *work,
                          struct flw_position *out)
{
    CUresult result = CUDA_SUCCESS;
    if (stream->capture != NULL) {
        return flw_capture_add(stream, work);
    }
    if (stream->kind == FLW_STREAM_LEGACY && stream->context->capture_count > 0) {
        FLW_TRY(flw_capture_refuse_legacy(stream));
    }
    if (flw_world_runs_on_clock()) {
        result = submit_on_clock(stream, work);
        if (result != CUDA_SUCCESS) {
            /* The work failed on the device; the submission did not. */
            flw_context_break(stream->context, result);
            result = CUDA_SUCCESS;
        }
    } else {
        make_room(flw_thread_get(), stream);
        result = submit_to_queue(stream, work);
    }
    if (out != NULL) {
        *out = flw_order_last(stream);
    }
    return result;
}

void flw_order_finish(void)
{
    while (flw_world.active_count > 0) {
        struct flw_stream *stream = flw_world.active[0];
        while (stream->head != NULL) {
            struct flw_operation *operation = stream->head;
            stream->head = operation->next;
            free_operation(operation);
        }
        stream->tail = NULL;
        stream->depth = 0;
        deactivate(stream);
        if (!stream->is_alive) {
            flw_stream_free(stream);
        }
    }
    while (flw_world.due != NULL) {
        struct flw_operation *operation = flw_world.due;
        flw_world.due = operation->next;
        flw_work_finish(&operation->work);
        free(operation);
    }
}

CUresult flw_order_give(struct flw_call *call, struct flw_stream *stream, struct flw_work *work,
                        bool waits)
{
    struct flw_position position = {0};
    struct flw_context *context = stream->context;
    bool is_captured = stream->capture != NULL;
    CUresult result = flw_order_submit(stream, work, &position);
    if (result == CUDA_SUCCESS && waits && !is_captured) {
        struct flw_order_clock clock = {0};
        if (flw_check_is_on()) {
            flw_clock_copy(&clock, &stream->clock);
        }
        flw_order_wait(call->thread, &position);
        flw_clock_host_saw(&clock);
        flw_clock_finish(&clock);
        result = context->sticky;
    }
    return result;
}
