/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the copy of the rings for a dump, and the file; the process's handlers of signals that
 * request a dump, which only count.
 *
 * No thread is stopped: a ring is copied while its owner continues, and records that the owner may
 * have overwritten meanwhile are dropped. The rings reach back to different times. Before the
 * latest of these, records are missing, so the dump begins there; the blocks allocated then follow
 * from those allocated now and the records since (initial_blocks.h).
 *
 * On a busy machine, or with small rings, a ring may wrap around while another is copied, again
 * and again, so that no common range is left. Then owners are held during a copy. */
#include "record/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES 8   /* small rings may be overwritten faster than they are copied */
#define NAMES 100 /* of new files beside another; a killed process leaves one */

struct dump {
    struct flw_merge_run *runs; /* with copies of the words */
    size_t count;
    struct flw_tsc_pair now;
    uint64_t begin_ticks, until_ticks;
    struct flw_initial_blocks initial;
};

static void drop_copies(struct dump *dump)
{
    for (size_t i = 0; i < dump->count; i++) {
        free((void *)(uintptr_t)dump->runs[i].words);
    }
    free(dump->runs);
    flw_initial_blocks_finish(&dump->initial);
}

static uint64_t ticks_of(const struct flw_merge_run *run, uint64_t number)
{
    return run->words[(number & run->mask) * FLW_RING_WORDS];
}

/* Copy a ring. Its owner is out, or inside with a record that is not in the copy. Records that it
 * overwrites meanwhile are still in the copy (drop_overwritten). False: no memory. */
static bool copy_ring(const struct flw_ring *ring, struct flw_merge_run *run)
{
    uint64_t capacity = ring->mask + 1;
    uint64_t *copy = malloc(capacity << FLW_RING_RECORD_LOG2);
    if (copy == NULL) {
        return false;
    }
    uint64_t end = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t begin = end > capacity ? end - capacity : 0;
    for (uint64_t i = begin; i < end; i++) {
        for (unsigned w = 0; w < FLW_RING_WORDS; w++) {
            uint64_t at = (i & ring->mask) * FLW_RING_WORDS + w;
            copy[at] = __atomic_load_n(&ring->words[at], __ATOMIC_RELAXED);
        }
    }
    *run = (struct flw_merge_run){
        .words = copy, .mask = ring->mask, .at = begin, .end = end, .thread = ring->thread};
    return true;
}

/* After an order (flw_recorder_order) behind the copy: the head is then at least the number of every
 * record that the copy has a word of. An owner stores the head of one record before the words of the
 * next, but only x86 shows others these stores in that order. */
static void drop_overwritten(const struct flw_ring *ring, struct flw_merge_run *run)
{
    /* The owner may be at work on the record that follows. */
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed) + 1;
    uint64_t capacity = ring->mask + 1, oldest = head > capacity ? head - capacity : 0;
    run->at = flw_min(flw_max(run->at, oldest), run->end);
}

/* From the next barrier on. A recorder that writes a file too has rings that wait by themselves. */
static void hold_rings(struct flw_ring *rings, bool is_held)
{
    for (struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
        if (ring->overwrites && is_held) {
            flw_ring_hold(ring);
        } else if (ring->overwrites) {
            flw_ring_let_go(ring);
        }
    }
}

/* False: no memory. */
static bool copy_each(struct flw_recorder *recorder, struct flw_ring *rings, struct dump *dump)
{
    flw_recorder_order(recorder);
    for (struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
        flw_asym_wait(&ring->asym);
        struct flw_merge_run *run = &dump->runs[dump->count];
        if (!copy_ring(ring, run)) {
            return false;
        }
        dump->count++;
        flw_recorder_order(recorder); /* now: the owner continues to overwrite */
        drop_overwritten(ring, run);
        if (run->at > 0) {
            uint64_t oldest = run->at < run->end ? ticks_of(run, run->at) : dump->now.ticks;
            dump->begin_ticks = flw_max(dump->begin_ticks, oldest);
        }
    }
    return true;
}

/* False: no memory. While rings are held, take nothing that an owner may hold. */
static bool copy_rings(struct flw_recorder *recorder, struct dump *dump, bool holds)
{
    const struct flw_recorder_host *host = &recorder->settings.host;
    host->look_up(host->context, &dump->initial, &recorder->names);
    struct flw_ring *rings = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    size_t count = 0;
    for (const struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
        count++;
    }
    dump->runs = calloc(count + 1, sizeof *dump->runs);
    if (dump->runs == NULL) {
        return false;
    }
    if (holds) {
        hold_rings(rings, true);
        flw_recorder_order(recorder);
        for (struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
            flw_asym_wait(&ring->asym);
        }
    }
    dump->now = flw_tsc_pair_now(recorder->uses_tsc);
    dump->begin_ticks = recorder->begin_ticks;
    dump->until_ticks = flw_min(dump->now.ticks, atomic_load(&recorder->end_ticks));
    bool is_copied = copy_each(recorder, rings, dump);
    if (holds) {
        hold_rings(rings, false);
    }
    return is_copied;
}

/* Return the runs from the dump's begin on, to be read once more. */
static struct flw_merge rewind_runs(struct dump *dump)
{
    struct flw_merge merge = {
        .runs = dump->runs, .count = dump->count, .until_ticks = dump->until_ticks};
    flw_merge_skip(&merge, dump->begin_ticks);
    flw_merge_begin(&merge);
    return merge;
}

static bool tell_all(struct dump *dump)
{
    struct flw_merge_record record;
    size_t bytes = (dump->count + 1) * sizeof *dump->runs;
    struct flw_merge merge = rewind_runs(dump);
    merge.runs = malloc(bytes);
    if (merge.runs == NULL) {
        return false;
    }
    memcpy(merge.runs, dump->runs, bytes);
    while (flw_merge_next(&merge, &record)) {
        flw_initial_blocks_update(&dump->initial, &record);
    }
    free(merge.runs);
    flw_initial_blocks_sort(&dump->initial);
    return !dump->initial.has_failed;
}

/* Write everything into the descriptor's file and close it. */
static bool write_all(struct flw_recorder *recorder, struct dump *dump, int fd,
                      const char **out_why)
{
    struct flw_trace_file_settings file = {.fd = fd,
                                           .device = recorder->settings.device,
                                           .uses_tsc = recorder->uses_tsc,
                                           .is_whole = false,
                                           .wall_ns = recorder->wall_ns,
                                           .zero = recorder->zero,
                                           .names = &recorder->names,
                                           .callstacks = recorder->settings.callstacks};
    struct flw_trace_file *trace_file = flw_trace_file_open(&file);
    if (trace_file == NULL) {
        return false;
    }
    struct flw_merge merge = rewind_runs(dump);
    bool is_written = flw_trace_file_start(trace_file, &dump->initial) &&
                      flw_trace_file_write(trace_file, &merge, &recorder->zero, &dump->now) &&
                      flw_trace_file_end(trace_file, 0);
    if (!is_written) {
        *out_why = flw_trace_file_problem(trace_file);
    }
    if (!flw_trace_file_close(trace_file) && is_written) {
        *out_why = strerror(EIO);
        is_written = false;
    }
    return is_written;
}

/* Create a file beside `path`, with the process's default mode; `name` becomes the name. -1: errno
 * has the reason. */
static int create_beside(const char *path, char *name, size_t name_bytes)
{
    int fd = -1;
    errno = EEXIST;
    for (unsigned i = 0; i < NAMES && fd < 0 && errno == EEXIST; i++) {
        snprintf(name, name_bytes, "%s.%d-%u", path, (int)getpid(), i);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return fd;
}

/* Write beside `path`, then rename. */
static fallow_status write_file(struct flw_recorder *recorder, struct dump *dump, const char *path,
                                const char **out_why)
{
    size_t bytes = strlen(path) + sizeof ".2147483647-4294967295";
    char *temporary = malloc(bytes);
    if (temporary == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    int fd = create_beside(path, temporary, bytes);
    bool is_there = fd >= 0;
    if (!is_there) {
        *out_why = strerror(errno);
    } else if (write_all(recorder, dump, fd, out_why)) {
        is_there = rename(temporary, path) == 0;
        *out_why = is_there ? *out_why : strerror(errno);
        if (is_there) {
            free(temporary);
            return FALLOW_OK;
        }
        is_there = true;
    }
    if (is_there) {
        (void)unlink(temporary);
    }
    free(temporary);
    return FALLOW_IO;
}

fallow_status flw_dump_write(struct flw_recorder *recorder, const char *path, const char **out_why)
{
    struct dump dump = {0};
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    bool is_copied = copy_rings(recorder, &dump, false);
    *out_why = "no host memory";
    for (int i = 1; i < TRIES && is_copied && dump.begin_ticks >= dump.until_ticks; i++) {
        drop_copies(&dump);
        dump = (struct dump){0};
        is_copied = copy_rings(recorder, &dump, i + 1 == TRIES);
    }
    if (is_copied && tell_all(&dump)) {
        status = write_file(recorder, &dump, path, out_why);
    }
    drop_copies(&dump);
    return status;
}

/* ---- signals */

#define SIGNALS 65

static struct {
    pthread_mutex_t mutex; /* of users and before */
    uint32_t users[SIGNALS];
    struct sigaction before[SIGNALS];
    _Atomic uint32_t count[SIGNALS];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void count_signal(int number)
{
    atomic_fetch_add_explicit(&table.count[number], 1, memory_order_relaxed);
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == count_signal;
}

static bool is_default(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 &&
           (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN);
}

static fallow_status install(int number)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &before) != 0) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (!is_default(&before)) {
        return FALLOW_BUSY;
    }
    if (sigaction(number, &action, NULL) != 0) {
        return FALLOW_INVALID_ARGUMENT; /* SIGKILL, SIGSTOP */
    }
    table.before[number] = before;
    return FALLOW_OK;
}

fallow_status flw_dumpsignal_acquire(int number)
{
    fallow_status status = FALLOW_OK;
    if (number <= 0 || number >= SIGNALS) {
        return FALLOW_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&table.mutex);
    if (table.users[number] == 0) {
        status = install(number);
    }
    table.users[number] += status == FALLOW_OK;
    pthread_mutex_unlock(&table.mutex);
    return status;
}

void flw_dumpsignal_release(int number)
{
    struct sigaction now;
    pthread_mutex_lock(&table.mutex);
    table.users[number]--;
    if (table.users[number] == 0 && sigaction(number, NULL, &now) == 0 && is_ours(&now)) {
        (void)sigaction(number, &table.before[number], NULL);
    }
    pthread_mutex_unlock(&table.mutex);
}

void flw_dumpsignal_forget(int number)
{
    struct sigaction now;
    pthread_mutex_init(&table.mutex, NULL); /* the holder is gone */
    if (number > 0 && table.users[number] > 0 && sigaction(number, NULL, &now) == 0 &&
        is_ours(&now)) {
        (void)sigaction(number, &table.before[number], NULL);
    }
    table.users[number] = 0;
}

uint32_t flw_dumpsignal_count(int number)
{
    return atomic_load_explicit(&table.count[number], memory_order_relaxed);
}
