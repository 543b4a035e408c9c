/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: choosing the next run. A thread's records are in bursts: the choice is made once per
 * burst. */
#include "record/merge.h"

#define RELEASE_EVERY 1024 /* records: a thread without room gets some while others are read */

static const uint64_t *words_at(const struct flw_merge_run *run)
{
    return &run->words[(run->at & run->mask) * FLW_RING_WORDS];
}

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Read the thread's stack records on the way. */
static void look_at(struct flw_merge_run *run)
{
    const uint64_t *words = words_at(run);
    for (; run->at < run->end && (load(&words[3]) & 0xFF) == FLW_RING_STACK;
         words = words_at(run)) {
        run->stack = (uint32_t)load(&words[1]);
        run->at++;
    }
    run->ticks = run->at < run->end ? flw_max(load(&words[0]), run->ticks) : UINT64_MAX;
}

static void release(struct flw_merge_run *run)
{
    run->released = run->at;
    if (run->ring != NULL) {
        run->ring->taken_stack = run->stack;
        atomic_store_explicit(&run->ring->tail, run->at, memory_order_release);
    }
}

static void choose(struct flw_merge *merge)
{
    uint64_t least = UINT64_MAX;
    merge->limit = UINT64_MAX;
    for (size_t i = 0; i < merge->count; i++) {
        uint64_t ticks = merge->runs[i].ticks;
        if (ticks < least) {
            merge->limit = least;
            least = ticks;
            merge->current = i;
        } else if (ticks < merge->limit) {
            merge->limit = ticks;
        }
    }
}

void flw_merge_skip(struct flw_merge *merge, uint64_t ticks)
{
    for (size_t i = 0; i < merge->count; i++) {
        struct flw_merge_run *run = &merge->runs[i];
        run->ticks = 0;
        for (look_at(run); run->ticks < ticks; look_at(run)) {
            run->at++;
        }
    }
}

void flw_merge_begin(struct flw_merge *merge)
{
    for (size_t i = 0; i < merge->count; i++) {
        merge->runs[i].ticks = 0;
        look_at(&merge->runs[i]);
    }
    merge->current = 0;
    choose(merge);
}

bool flw_merge_next(struct flw_merge *merge, struct flw_merge_record *out)
{
    if (merge->count == 0) {
        return false;
    }
    struct flw_merge_run *run = &merge->runs[merge->current];
    if (run->ticks > merge->limit || run->at == run->end) {
        choose(merge);
        run = &merge->runs[merge->current];
    }
    if (run->at == run->end || run->ticks > merge->until_ticks) {
        return false;
    }
    const uint64_t *words = words_at(run);
    uint64_t sizes = load(&words[2]), rest = load(&words[3]);
    *out = (struct flw_merge_record){
        .ticks = run->ticks,
        .address = load(&words[1]),
        .size_bytes = sizes & FLW_RING_SIZE_MAX,
        .stream = (uint32_t)(sizes >> FLW_RING_SIZE_BITS),
        .tag = (uint32_t)(rest >> 32),
        .pool = (uint32_t)(rest >> 16) & 0xFFFF,
        .thread = run->thread,
        .stack = (rest & FLW_RING_STACK_BIT) != 0 ? run->stack : 0,
        .op = (enum flw_trace_op)(rest & 0xFF),
    };
    run->at++;
    look_at(run);
    if (run->at - run->released >= RELEASE_EVERY) {
        release(run);
    }
    return true;
}

void flw_merge_release(struct flw_merge *merge)
{
    for (size_t i = 0; i < merge->count; i++) {
        release(&merge->runs[i]);
    }
}
