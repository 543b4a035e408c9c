/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/summary.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/thread.h"
#include "pool/extensions/stats.h"
#include "pool/state/table.h"
#include "preload/hook_use.h"
#include "preload/life.h"
#include "preload/live_contexts.h"
#include "preload/runplace.h"

static bool is_forked; /* the file with this name is the parent's */
static pthread_mutex_t gathering = PTHREAD_MUTEX_INITIALIZER;
static struct flw_summary ended, all; /* under gathering: pools that have ended; all pools */

/* ---- collecting */

static void add_stats(struct flw_summary *summary, const fallow_stats *stats)
{
    fallow_stats *sum = &summary->sum;
    if (summary->pool_count < FLW_SUMMARY_POOLS) {
        summary->pools[summary->pool_count] = *stats;
    }
    summary->pool_count++;
#define ADD(name, field) sum->field += stats->field;
    FLW_SUMMARY_FIELDS(ADD, FLW_SUMMARY_NOT)
#undef ADD
}

static void add_peaks(struct flw_pool *pool, void *context)
{
    fallow_stats stats, *now = context;
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
#define ADD(name, field) now->field += stats.field;
    FLW_SUMMARY_FIELDS(FLW_SUMMARY_NOT, ADD)
#undef ADD
}

/* A pool about to end counts with those alive at the same time, not with later ones. */
static void raise_peaks(fallow_stats *sum)
{
    fallow_stats now;
    fallow_stats_init(&now);
    flw_pool_table_each(add_peaks, &now);
#define RAISE(name, field) sum->field = flw_max(sum->field, now.field);
    FLW_SUMMARY_FIELDS(FLW_SUMMARY_NOT, RAISE)
#undef RAISE
}

static void add_pool(struct flw_pool *pool, void *context)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
    add_stats(context, &stats);
}

/* The blocks ended with the context. */
static void add_ended(struct flw_pool *pool)
{
    fallow_stats stats;
    (void)pthread_mutex_lock(&gathering);
    raise_peaks(&ended.sum); /* the pool still counts here */
    fallow_stats_init(&stats);
    flw_pool_read_stats(pool, &stats);
    stats.live_count = 0;
    stats.live_bytes = 0;
    stats.reserved_bytes = 0;
    add_stats(&ended, &stats);
    (void)pthread_mutex_unlock(&gathering);
}

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* `gathering` held. */
static void gather(void)
{
    all = ended;
    all.mode = flw_settings.mode;
    all.process = (int)getpid();
    snprintf(all.program, sizeof all.program, "%s", program_invocation_short_name);
    all.dlsym_count = flw_hook_use.dlsym_count;
    all.proc_address_count = flw_hook_use.proc_address_count;
    all.linked_count = flw_hook_use.export_count;
    all.is_trace = flw_settings.mode == FLW_MODE_TRACE;
    flw_pool_table_each(add_pool, &all);
    raise_peaks(&all.sum);
    flw_tracer_sum(&all.trace);
    flw_poison_sum(&all.poison);
    for (unsigned i = 0; i < FLW_BYPASS_COUNT; i++) {
        all.bypasses[i] = read_count(&flw_live_context_counts.bypasses[i]);
    }
    all.foreign_frees = read_count(&flw_live_context_counts.foreign_frees);
    all.double_frees = read_count(&flw_live_context_counts.double_frees);
    all.retries = read_count(&flw_live_context_counts.retries);
    all.retries_served = read_count(&flw_live_context_counts.retries_served);
    all.contexts_ended = read_count(&flw_live_context_counts.contexts_ended);
}

/* ---- post to the page of `fallow run` */

#define POST_NS     (40 * 1000000)
#define LAST_NS     (100 * 1000000)
#define STACK_BYTES (256 * 1024)

static struct {
    _Atomic int process; /* the process of the posting thread; 0: none */
    _Atomic uint32_t asked, answered;
    bool is_over; /* under gathering */
} poster;

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, long ns)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &(struct timespec){.tv_nsec = ns},
                  NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void *post(void *nothing)
{
    (void)pthread_setname_np(pthread_self(), "fallow-stats");
    for (bool is_over = false; !is_over;) {
        uint32_t asked = atomic_load(&poster.asked);
        (void)pthread_mutex_lock(&gathering);
        is_over = poster.is_over;
        if (!is_over) {
            gather();
            flw_runpage_post(flw_runplace_here(), &all);
        }
        (void)pthread_mutex_unlock(&gathering);
        atomic_store(&poster.answered, asked);
        wake(&poster.answered);
        sleep_on(&poster.asked, asked, is_over ? 0 : POST_NS);
    }
    return nothing;
}

/* Start posting, at first use of the driver. If no thread can be created, only processes that end
 * by exit are counted. */
static void begin_to_post(void)
{
    pthread_t thread;
    int process = (int)getpid();
    if (flw_settings.stats_file[0] != '\0' && flw_runplace_here() != NULL &&
        atomic_exchange(&poster.process, process) != process) {
        if (flw_thread_start(&thread, STACK_BYTES, post, NULL) == 0) {
            (void)pthread_detach(thread);
        } else {
            atomic_store(&poster.process, 0);
        }
    }
}

void flw_summary_post_last(void)
{
    if (atomic_load(&poster.process) != (int)getpid()) { /* nor in the child of a vfork */
        return;
    }
    uint64_t until = flw_clock_read(CLOCK_MONOTONIC) + LAST_NS;
    uint32_t question = atomic_fetch_add(&poster.asked, 1) + 1, seen;
    wake(&poster.asked);
    while ((int32_t)((seen = atomic_load(&poster.answered)) - question) < 0) {
        if (flw_clock_read(CLOCK_MONOTONIC) >= until) {
            return;
        }
        sleep_on(&poster.answered, seen, LAST_NS);
    }
    flw_runplace_say(FLW_RUNPAGE_LEFT);
}

/* ---- begin and end */

static void end(void)
{
    if (flw_settings.stats_file[0] == '\0' || flw_settings.mode == FLW_MODE_OFF ||
        flw_life_state() == FLW_LIFE_DEAD || !flw_hook_use_is_reached()) {
        return;
    }
    flw_tracer_finish(); /* so that the last errors count */
    (void)pthread_mutex_lock(&gathering);
    poster.is_over = true;
    gather();
    (void)pthread_mutex_unlock(&gathering);
    if (flw_runpage_tell(flw_runplace_here())) {
        struct flw_runpage *page = flw_runplace_page();
        bool is_ours = (page != NULL || !is_forked) &&
                       flw_runpage_claim(page, FLW_RUNPAGE_STATS, (int32_t)getpid());
        flw_summary_write(&all, flw_settings.stats_file, is_ours);
    }
}

static void note_fork(void)
{
    is_forked = true;
    (void)pthread_mutex_init(&gathering, NULL);
}

static void start(void)
{
    flw_live_contexts_on_end = add_ended;
}

const struct flw_part flw_part_summary = {
    .start = start, .use = begin_to_post, .child = note_fork, .end = end};
