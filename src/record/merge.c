/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: choosing the run whose turn it is. A thread's records come in bursts: the choice is made once
 * a burst.
 */
#include "record/merge.h"

#define RELEASE_EVERY 1024 /* records: a thread that has no room gets some while others are read */

static void look_at(struct flw_merge_run *run)
{
    uint64_t ticks = UINT64_MAX;
    if (run->at < run->end) {
        ticks =
            __atomic_load_n(&run->words[(run->at & run->mask) * FLW_RING_WORDS], __ATOMIC_RELAXED);
        ticks = flw_max(ticks, run->ticks);
    }
    run->ticks = ticks;
}

static void release(const struct flw_merge_run *run)
{
    if (run->ring != NULL) {
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
    const uint64_t *words = &run->words[(run->at & run->mask) * FLW_RING_WORDS];
    uint64_t sizes = __atomic_load_n(&words[2], __ATOMIC_RELAXED);
    uint64_t rest = __atomic_load_n(&words[3], __ATOMIC_RELAXED);
    *out = (struct flw_merge_record){
        .ticks = run->ticks,
        .address = __atomic_load_n(&words[1], __ATOMIC_RELAXED),
        .size_bytes = sizes & FLW_RING_SIZE_MAX,
        .stream = (uint32_t)(sizes >> FLW_RING_SIZE_BITS),
        .tag = (uint32_t)(rest >> 32),
        .pool = (uint32_t)(rest >> 16) & 0xFFFF,
        .thread = run->thread,
        .op = (enum flw_trace_op)(rest & 0xFF),
    };
    run->at++;
    look_at(run);
    if (run->at % RELEASE_EVERY == 0) {
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
