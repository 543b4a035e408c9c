/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: two policies that run nothing. `recorded`: the bytes that the recorded allocator held. `bound`: the most live
 * bytes, which is the least for any policy, and the least for a policy that never waits.
 */
#include "policies/policy.h"

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

static uint64_t count_ooms(const struct flw_trace *trace)
{
    uint64_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].op == FLW_TRACE_OOM;
    }
    return count;
}

static void get_recorded(void *self, struct flw_policy_statistics *out)
{
    const struct flw_policy_setup *setup = self;
    const struct flw_trace *trace = setup->trace;
    out->peak_requested_bytes = trace->peak_requested_bytes;
    out->failure_count = count_ooms(trace);
    if (trace->recorded_peak_reserved_bytes != 0) {
        out->peak_reserved_bytes = trace->recorded_peak_reserved_bytes;
    }
    if (trace->has_segments) {
        out->driver_call_count = trace->recorded_segment_calls;
    }
}

/* ---- without a wait ---- */

/* The completion of work is counted in ops: an op's *moment* is its index + 1. The moment is reached one lag after the
 * op, when the work of the op is complete; moment 0 is always reached. Ops are in the order of the clock, so moments are
 * reached in order. */

/* Freed bytes with incomplete work. */
struct freed {
    size_t done;  /* all streams may take them from this moment on */
    size_t ready; /* `stream` may take them from this earlier moment on, in stream order */
    uint64_t bytes;
    uint16_t stream;
};

/* A binary heap. */
struct freed_heap {
    struct freed *list;
    size_t count, capacity;
    bool is_by_ready; /* earliest `ready` first; else latest `done` first */
};

static bool comes_before(const struct freed_heap *heap, size_t a, size_t b)
{
    return heap->is_by_ready ? heap->list[a].ready < heap->list[b].ready
                             : heap->list[a].done > heap->list[b].done;
}

static void swap(struct freed_heap *heap, size_t a, size_t b)
{
    struct freed kept = heap->list[a];
    heap->list[a] = heap->list[b];
    heap->list[b] = kept;
}

static void push(struct freed_heap *heap, const struct freed *freed)
{
    FLW_HOST_GROW(heap->list, heap->capacity, heap->count + 1);
    size_t i = heap->count++;
    heap->list[i] = *freed;
    for (; i > 0 && comes_before(heap, i, (i - 1) / 2); i = (i - 1) / 2) {
        swap(heap, i, (i - 1) / 2);
    }
}

static void pop(struct freed_heap *heap)
{
    heap->list[0] = heap->list[--heap->count];
    for (size_t i = 0, first;; i = first) {
        first = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap->count; child++) {
            first = comes_before(heap, child, first) ? child : first;
        }
        if (first == i) {
            return;
        }
        swap(heap, i, first);
    }
}

/* One of the other streams that use a block. */
struct user {
    uint16_t stream;
    uint32_t next; /* of the same block */
};

/* The streams that may work on a live block. */
struct worked {
    uint16_t home;  /* of the allocation */
    uint32_t users; /* the first; 0: none */
};

struct walk {
    const struct flw_program *program;
    uint64_t lag_units, now_units;
    size_t reached;         /* all moments up to this one are reached */
    uint64_t reached_units; /* the clock at the next op */
    uint64_t *due_bytes;    /* by moment: bytes that all streams may take from then on */
    uint64_t free_bytes;    /* that all streams may take */
    uint64_t held_bytes;    /* allocated from the driver so far */
    struct freed_heap
        *own; /* by stream: bytes that only it may take; expired ones are dropped when first */
    struct freed_heap ahead; /* not yet for their own stream: other streams use them */
    size_t *last;            /* by stream: the moment of its last work */
    struct worked *blocks;
    struct user *users; /* from 1 on */
    size_t user_count, user_capacity;
};

static void advance(struct walk *walk, size_t i)
{
    const struct flw_op *ops = walk->program->ops;
    walk->now_units += ops[i].advance_units;
    while (walk->reached < i && walk->now_units - walk->reached_units >= walk->lag_units) {
        walk->free_bytes += walk->due_bytes[++walk->reached];
        walk->reached_units += ops[walk->reached].advance_units;
    }
    while (walk->ahead.count != 0 && walk->ahead.list[0].ready <= walk->reached) {
        const struct freed *first = &walk->ahead.list[0];
        if (first->done > walk->reached) {
            push(&walk->own[first->stream], first);
        }
        pop(&walk->ahead);
    }
}

/* Take the worst free bytes that fit. Of two free bytes, one is better if every stream that may take the other, now or
 * later, may take it too: bytes for all streams are better than a stream's own, and of its own those with earlier
 * completion. So a stream takes its own bytes with the latest completion first, then bytes for all streams, then new
 * ones. No other order holds less: if an order takes the better of two bytes, exchange the two from there on. Every
 * later request is served as before, because a stream that may take the worse byte may take the better one. */
static void take(struct walk *walk, uint16_t stream, uint64_t bytes)
{
    struct freed_heap *own = &walk->own[stream];
    while (bytes != 0 && own->count != 0 && own->list[0].done > walk->reached) {
        struct freed *last = &own->list[0];
        uint64_t part = flw_min(bytes, last->bytes);
        bytes -= part;
        last->bytes -= part;
        walk->due_bytes[last->done] -= part;
        if (last->bytes == 0) {
            pop(own);
        }
    }
    if (own->count != 0 && own->list[0].done <= walk->reached) {
        own->count = 0; /* the latest is complete: all are */
    }
    uint64_t part = flw_min(bytes, walk->free_bytes);
    walk->free_bytes -= part;
    walk->held_bytes += bytes - part;
}

static void allocate(struct walk *walk, const struct flw_op *op, size_t moment)
{
    take(walk, op->stream, op->size_bytes);
    walk->blocks[op->block] = (struct worked){.home = op->stream};
    walk->last[op->stream] = moment;
}

/* The replay orders the user's stream after the block's own. */
static void use(struct walk *walk, const struct flw_op *op, size_t moment)
{
    struct worked *block = &walk->blocks[op->block];
    uint32_t i = block->users;
    walk->last[op->stream] = moment;
    while (i != 0 && walk->users[i].stream != op->stream) {
        i = walk->users[i].next;
    }
    if (i != 0 || op->stream == block->home) {
        return;
    }
    FLW_HOST_GROW(walk->users, walk->user_capacity, walk->user_count + 2);
    walk->users[++walk->user_count] = (struct user){op->stream, block->users};
    block->users = (uint32_t)walk->user_count;
}

/* Return the moment of the last work that may use the block: by the contract of an announced use, any work that the
 * stream was given before the free. */
static size_t last_use(const struct walk *walk, const struct worked *block, uint16_t but)
{
    size_t last = 0;
    for (uint32_t i = block->users; i != 0; i = walk->users[i].next) {
        uint16_t stream = walk->users[i].stream;
        last = stream == but ? last : flw_max(last, walk->last[stream]);
    }
    return last;
}

/* A free on another stream is ordered after the block's own, so only uses on further streams are incomplete. */
static void give_back(struct walk *walk, const struct flw_op *op)
{
    const struct worked *block = &walk->blocks[op->block];
    size_t *last = &walk->last[op->stream];
    *last = flw_max(*last, walk->last[block->home]);
    struct freed freed = {
        .ready = last_use(walk, block, op->stream), .bytes = op->size_bytes, .stream = op->stream};
    freed.done = flw_max(*last, freed.ready);
    if (freed.done <= walk->reached) {
        walk->free_bytes += freed.bytes;
        return;
    }
    walk->due_bytes[freed.done] += freed.bytes;
    if (freed.ready <= walk->reached) {
        push(&walk->own[op->stream], &freed);
    } else if (freed.ready < freed.done) {
        push(&walk->ahead, &freed);
    }
}

static void finish_walk(struct walk *walk)
{
    for (size_t i = 0; i < walk->program->stream_count; i++) {
        flw_host_free(walk->own[i].list);
    }
    flw_host_free(walk->own);
    flw_host_free(walk->ahead.list);
    flw_host_free(walk->due_bytes);
    flw_host_free(walk->last);
    flw_host_free(walk->blocks);
    flw_host_free(walk->users);
}

uint64_t flw_bound_without_wait(const struct flw_program *program, uint64_t lag_units)
{
    struct walk walk = {.program = program, .lag_units = lag_units};
    walk.due_bytes = flw_host_alloc(program->op_count + 1, sizeof *walk.due_bytes);
    walk.own = flw_host_alloc(program->stream_count, sizeof *walk.own);
    walk.last = flw_host_alloc(program->stream_count, sizeof *walk.last);
    walk.blocks = flw_host_alloc(program->block_count, sizeof *walk.blocks);
    walk.ahead.is_by_ready = true;
    walk.reached_units = program->ops[0].advance_units;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        advance(&walk, i);
        if (op->kind == FLW_OP_ALLOC) {
            allocate(&walk, op, i + 1);
        } else if (op->kind == FLW_OP_USE) {
            use(&walk, op, i + 1);
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            give_back(&walk, op);
        }
    }
    finish_walk(&walk);
    return walk.held_bytes;
}

/* ---- the bound ---- */

static void get_bound(void *self, struct flw_policy_statistics *out)
{
    const struct flw_policy_setup *setup = self;
    out->peak_requested_bytes = setup->program->max_live_bytes;
    out->peak_reserved_bytes = setup->program->max_live_bytes;
    out->without_wait_bytes = flw_bound_without_wait(setup->program, setup->lag_units);
    out->failure_count = 0;
}

const struct flw_policy flw_policy_recorded = {
    .name = "recorded",
    .summary = "the memory that the recorded allocator held",
    .get_statistics = get_recorded,
};

const struct flw_policy flw_policy_bound = {
    .name = "bound",
    .summary = "the most bytes that were live: none holds less; and the least without a wait",
    .get_statistics = get_bound,
};
