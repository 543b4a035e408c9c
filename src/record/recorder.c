/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the life of a recording, and the flusher.
 */
#include "record/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/backoff.h"
#include "record/array.h"
#include "record/dump.h"

#define LOOK_NS        UINT64_C(10000000) /* between two checks of the flusher, at most */
#define FLUSH_NS       UINT64_C(40000000) /* between two small chunks, at least */
#define FLUSH_COUNT    1000    /* records that are no small chunk: a chunk costs about 200 bytes */
#define START_DELAY_NS 1000000 /* for calls under way when the recording begins */

static void say(const struct flw_recorder *recorder, bool is_error, const char *what,
                const char *path, const char *why)
{
    char line[640];
    const struct flw_recorder_host *host = &recorder->settings.host;
    snprintf(line, sizeof line, "recording: %s %.200s: %.100s", what, path, why);
    host->log(host->context, is_error, line);
}

/* ---- create */

static fallow_status open_file(struct flw_recorder *recorder)
{
    struct flw_trace_file_settings file = {.device = recorder->settings.device,
                                           .uses_tsc = recorder->uses_tsc,
                                           .is_whole = true,
                                           .wall_ns = recorder->wall_ns,
                                           .zero = recorder->zero,
                                           .names = &recorder->names,
                                           .callstacks = recorder->settings.callstacks};
    file.fd = open(recorder->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file.fd < 0) {
        say(recorder, true, "cannot create", recorder->path, strerror(errno));
        return FALLOW_IO;
    }
    recorder->trace_file = flw_trace_file_open(&file);
    return recorder->trace_file == NULL ? FALLOW_OUT_OF_HOST_MEMORY : FALLOW_OK;
}

fallow_status flw_recorder_create(const struct flw_recorder_settings *settings,
                                  struct flw_recorder **out_recorder)
{
    struct flw_recorder *recorder = calloc(1, sizeof *recorder);
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    *out_recorder = NULL;
    if (recorder == NULL) {
        return status;
    }
    recorder->settings = *settings;
    recorder->settings.path = NULL;
    recorder->settings.dump_signal = 0;
    recorder->uses_tsc = flw_tsc_is_usable();
    recorder->wall_ns = flw_clock_read(CLOCK_REALTIME);
    recorder->zero = flw_tsc_pair_now(recorder->uses_tsc);
    recorder->last = recorder->zero;
    atomic_init(&recorder->end_ticks, UINT64_MAX);
    recorder->process = (uint32_t)getpid();
    flw_names_init(&recorder->names);
    flw_lock_init(&recorder->lock, FLW_RANK_RECORD);
    atomic_init(&recorder->is_fenced, settings->is_fenced);
    pthread_mutex_init(&recorder->io, NULL);
    if (settings->path != NULL && (recorder->path = flw_array_copy_text(settings->path)) == NULL) {
        goto fail;
    }
    if (settings->dump_signal != 0) {
        status = flw_dumpsignal_acquire(settings->dump_signal);
        if (status != FALLOW_OK) {
            goto fail;
        }
        recorder->settings.dump_signal = settings->dump_signal;
        recorder->seen_signals = flw_dumpsignal_count(settings->dump_signal);
    }
    if (!settings->keeps_last) {
        status = open_file(recorder);
        if (status != FALLOW_OK) {
            goto fail;
        }
    }
    *out_recorder = recorder;
    return FALLOW_OK;

fail:
    flw_recorder_destroy(recorder);
    return status;
}

void flw_recorder_destroy(struct flw_recorder *recorder)
{
    for (struct flw_ring *ring = atomic_load(&recorder->rings), *next; ring != NULL; ring = next) {
        next = ring->next;
        flw_ring_destroy(ring);
    }
    if (recorder->settings.dump_signal != 0) {
        flw_dumpsignal_release(recorder->settings.dump_signal);
    }
    (void)flw_trace_file_close(recorder->trace_file);
    flw_names_finish(&recorder->names);
    pthread_mutex_destroy(&recorder->io);
    free(recorder->path);
    free(recorder);
}

static struct flw_ring *find_ring(const struct flw_recorder *recorder, uintptr_t token)
{
    struct flw_ring *ring = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    while (ring != NULL && ring->token != token) {
        ring = ring->next;
    }
    return ring;
}

struct flw_ring *flw_recorder_ring(struct flw_recorder *recorder, uintptr_t token)
{
    struct flw_ring *found = find_ring(recorder, token);
    if (found != NULL) {
        return found;
    }
    struct flw_ring_settings settings = {.ring_bytes = recorder->settings.ring_bytes,
                                         .uses_tsc = recorder->uses_tsc,
                                         .waits = recorder->settings.waits,
                                         .overwrites = recorder->settings.keeps_last,
                                         .stage = &recorder->stage,
                                         .wakeup = &recorder->wakeup};
    struct flw_ring *ring = flw_ring_create(&settings);
    if (ring == NULL) {
        return NULL;
    }
    flw_lock_acquire(&recorder->lock);
    found = find_ring(recorder, token); /* the thread that began the recording may have created
                                            it */
    if (found == NULL) {
        ring->is_fenced = atomic_load(&recorder->is_fenced);
        ring->token = token;
        ring->thread = recorder->ring_count++;
        ring->next = atomic_load_explicit(&recorder->rings, memory_order_relaxed);
        atomic_store_explicit(&recorder->rings, ring, memory_order_release);
    }
    flw_lock_release(&recorder->lock);
    if (found != NULL) {
        flw_ring_destroy(ring);
        return found;
    }
    return ring;
}

/* ---- order between the owners of rings and the reader */

static void fence_owners(struct flw_recorder *recorder)
{
    flw_lock_acquire(&recorder->lock); /* a ring under construction has read it, or will */
    atomic_store(&recorder->is_fenced, true);
    struct flw_ring *ring = atomic_load_explicit(&recorder->rings, memory_order_relaxed);
    for (; ring != NULL; ring = ring->next) {
        flw_ring_begin_fencing(ring);
    }
    flw_lock_release(&recorder->lock);
    flw_asym_slow_barrier();
}

void flw_recorder_order(struct flw_recorder *recorder)
{
    if (!atomic_load(&recorder->is_fenced) && !flw_asym_barrier()) {
        fence_owners(recorder);
    }
    flw_ring_fence();
}

/* ---- emptying the rings, all under io */

struct harvest {
    struct flw_merge merge;
    struct flw_tsc_pair now;
};

/* Collect the records up to a moment, in order. False: no memory. */
static bool gather(struct flw_recorder *recorder, struct harvest *out)
{
    struct flw_ring *rings = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    size_t count = 0;
    *out = (struct harvest){.now = flw_tsc_pair_now(recorder->uses_tsc)};
    for (struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
        count++;
    }
    out->merge.runs = calloc(count + 1, sizeof *out->merge.runs);
    if (out->merge.runs == NULL) {
        return false;
    }
    flw_recorder_order(recorder);
    for (struct flw_ring *ring = rings; ring != NULL; ring = ring->next) {
        flw_asym_wait(&ring->asym);
        out->merge.runs[out->merge.count++] =
            (struct flw_merge_run){.words = ring->words,
                                   .mask = ring->mask,
                                   .at = atomic_load_explicit(&ring->tail, memory_order_relaxed),
                                   .end = atomic_load_explicit(&ring->head, memory_order_acquire),
                                   .thread = ring->thread,
                                   .stack = ring->taken_stack,
                                   .ring = ring};
    }
    out->merge.until_ticks = flw_min(out->now.ticks, atomic_load(&recorder->end_ticks));
    flw_merge_begin(&out->merge);
    return true;
}

/* Return the number of records in all rings. */
static uint64_t waiting_count(const struct flw_recorder *recorder)
{
    uint64_t count = 0;
    struct flw_ring *ring = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) {
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        count += atomic_load_explicit(&ring->head, memory_order_relaxed) - tail;
    }
    return count;
}

/* End the recording after a failure; the recorded program continues. */
static fallow_status fail_file(struct flw_recorder *recorder)
{
    if (recorder->failure == NULL) {
        const char *why = flw_trace_file_problem(recorder->trace_file);
        recorder->failure = why != NULL ? why : "no host memory";
        atomic_store(&recorder->stage, FLW_RING_OVER);
        atomic_store(&recorder->has_to_detach, true);
    }
    return FALLOW_IO;
}

/* Release io, then do the work due after a failure. */
static void leave_io(struct flw_recorder *recorder)
{
    const struct flw_recorder_host *host = &recorder->settings.host;
    const char *failure = recorder->failure;
    pthread_mutex_unlock(&recorder->io);
    if (failure != NULL && atomic_exchange(&recorder->has_to_detach, false)) {
        host->detach(host->context);
        say(recorder, true, "has ended, cannot write", recorder->path, failure);
    }
}

static fallow_status write_harvest(struct flw_recorder *recorder)
{
    struct harvest harvest;
    if (recorder->failure != NULL) {
        return FALLOW_IO;
    }
    bool is_written =
        gather(recorder, &harvest) &&
        flw_trace_file_write(recorder->trace_file, &harvest.merge, &recorder->last, &harvest.now);
    flw_merge_release(&harvest.merge);
    free(harvest.merge.runs);
    recorder->last = harvest.now;
    return is_written && flw_trace_file_flush(recorder->trace_file) ? FALLOW_OK
                                                                    : fail_file(recorder);
}

/* Write the initial blocks, before anything else. */
static fallow_status write_start(struct flw_recorder *recorder)
{
    const struct flw_recorder_host *host = &recorder->settings.host;
    struct flw_initial_blocks initial = {0};
    struct harvest harvest;
    struct flw_merge_record record;
    host->look_up(host->context, &initial, &recorder->names);
    flw_sleep_ns(START_DELAY_NS);
    bool is_written = gather(recorder, &harvest);
    flw_merge_skip(&harvest.merge, recorder->begin_ticks);
    flw_merge_release(&harvest.merge);
    flw_merge_begin(&harvest.merge);
    for (size_t i = 0; i < harvest.merge.count; i++) {
        harvest.merge.runs[i].ring = NULL; /* they are read again */
    }
    while (is_written && flw_merge_next(&harvest.merge, &record)) {
        flw_initial_blocks_update(&initial, &record);
    }
    flw_initial_blocks_sort(&initial);
    is_written = is_written && flw_trace_file_start(recorder->trace_file, &initial);
    free(harvest.merge.runs);
    flw_initial_blocks_finish(&initial);
    return is_written ? FALLOW_OK : fail_file(recorder);
}

fallow_status flw_recorder_flush(struct flw_recorder *recorder)
{
    fallow_status status = FALLOW_OK;
    pthread_mutex_lock(&recorder->io);
    if (recorder->trace_file != NULL) {
        status = write_harvest(recorder);
    }
    leave_io(recorder);
    return status;
}

#define LIST_WAIT_NS 100000000 /* of a file that is being written */

size_t flw_recorder_list_holders(struct flw_recorder *recorder, struct flw_trace_file_holder *out,
                                 size_t most, struct flw_trace_file_holder *out_rest)
{
    struct timespec until;
    size_t count = 0;
    *out_rest = (struct flw_trace_file_holder){0};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LIST_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_mutex_timedlock(&recorder->io, &until) == 0) {
        if (recorder->trace_file != NULL) {
            count = flw_trace_file_list_holders(recorder->trace_file, out, most, out_rest);
        }
        leave_io(recorder);
    }
    return count;
}

/* ---- dumps */

fallow_status flw_recorder_dump(struct flw_recorder *recorder, const char *path)
{
    const char *why = NULL;
    pthread_mutex_lock(&recorder->io);
    fallow_status status = flw_dump_write(recorder, path, &why);
    pthread_mutex_unlock(&recorder->io);
    if (status != FALLOW_OK) {
        say(recorder, true, "cannot dump to", path, why);
    } else {
        say(recorder, false, "dumped to", path, "complete");
    }
    return status;
}

/* ---- the end of the file */

static uint64_t lost_count(const struct flw_recorder *recorder)
{
    uint64_t count = atomic_load(&recorder->unheard);
    struct flw_ring *ring = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) {
        count += atomic_load_explicit(&ring->lost, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        for (; tail < head; tail++) { /* after the end; but records that it lost were lost
                                          before */
            count += flw_ring_drop_count(ring, tail);
        }
    }
    return count;
}

/* Log the missing records of a file that is otherwise complete. */
static fallow_status say_missing(const struct flw_recorder *recorder,
                                 const struct flw_trace_file_tally *tally)
{
    char what[120];
    const char *advice = recorder->settings.host.when_lost;
    snprintf(what, sizeof what, "%" PRIu64 " of %" PRIu64 " events (%.3g %%) are missing in",
             tally->missing_count, tally->event_count,
             100.0 * (double)tally->missing_count / (double)tally->event_count);
    say(recorder, true, what, recorder->path,
        recorder->settings.waits ? "the host had no memory for a thread's ring"
        : advice != NULL         ? advice
                                 : "threads were faster than the writer");
    return FALLOW_RECORDS_LOST;
}

static fallow_status end_file(struct flw_recorder *recorder)
{
    fallow_status status = FALLOW_OK;
    struct flw_trace_file_tally tally = {0};
    bool is_closed = true;
    pthread_mutex_lock(&recorder->io);
    if (recorder->trace_file != NULL) {
        status = write_harvest(recorder);
        if (status == FALLOW_OK &&
            !flw_trace_file_end(recorder->trace_file, lost_count(recorder))) {
            status = fail_file(recorder);
        }
        tally = flw_trace_file_count(recorder->trace_file);
        is_closed = flw_trace_file_close(recorder->trace_file);
        recorder->trace_file = NULL;
    }
    leave_io(recorder);
    if (status == FALLOW_OK && !is_closed) {
        say(recorder, true, "cannot close", recorder->path, strerror(EIO));
        status = FALLOW_IO;
    }
    return status == FALLOW_OK && tally.missing_count > 0 ? say_missing(recorder, &tally) : status;
}

/* ---- the flusher */

static void answer_signal(struct flw_recorder *recorder)
{
    int number = recorder->settings.dump_signal;
    if (number == 0) {
        return;
    }
    uint32_t count = flw_dumpsignal_count(number);
    if (count != recorder->seen_signals) {
        recorder->seen_signals = count;
        if (recorder->settings.keeps_last) {
            (void)flw_recorder_dump(recorder, recorder->path);
        } /* a file has everything: flush it in any case */
    }
}

static void *flusher_main(void *argument)
{
    struct flw_recorder *recorder = argument;
    uint64_t flushed_ns = flw_clock_fine_ns();
    uint32_t heard = 0;
    while (!flw_recorder_is_over(recorder)) {
        flw_wakeup_wait(&recorder->wakeup, heard, LOOK_NS);
        uint32_t count = flw_wakeup_count(&recorder->wakeup);
        answer_signal(recorder);
        uint64_t waiting = recorder->trace_file != NULL ? waiting_count(recorder) : 0;
        uint64_t now_ns = flw_clock_fine_ns();
        if (waiting >= FLUSH_COUNT || (waiting > 0 && count != heard) ||
            (waiting > 0 && now_ns - flushed_ns >= FLUSH_NS)) {
            (void)flw_recorder_flush(recorder);
            flushed_ns = now_ns;
        }
        heard = count;
    }
    if (atomic_load(&recorder->is_abandoned)) {
        (void)end_file(recorder);
    }
    return NULL;
}

static bool start_flusher(struct flw_recorder *recorder)
{
    sigset_t all, before;
    if (recorder->trace_file == NULL && recorder->settings.dump_signal == 0) {
        return true;
    }
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    recorder->has_flusher = pthread_create(&recorder->flusher, NULL, flusher_main, recorder) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return recorder->has_flusher;
}

fallow_status flw_recorder_begin(struct flw_recorder *recorder)
{
    fallow_status status = FALLOW_OK;
    struct flw_ring *ring = atomic_load_explicit(&recorder->rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) { /* some threads have recorded for a while */
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        atomic_store_explicit(&ring->tail, head, memory_order_release);
    }
    recorder->begin_ticks = flw_tsc_read(recorder->uses_tsc, true);
    atomic_store(&recorder->stage, FLW_RING_RUNNING);
    if (recorder->trace_file != NULL) {
        pthread_mutex_lock(&recorder->io);
        status = write_start(recorder);
        if (status == FALLOW_OK) {
            status = write_harvest(recorder);
        }
        leave_io(recorder);
    }
    return status != FALLOW_OK       ? status
           : start_flusher(recorder) ? FALLOW_OK
                                     : FALLOW_OUT_OF_HOST_MEMORY;
}

/* ---- the end */

void flw_recorder_close(struct flw_recorder *recorder)
{
    uint64_t open = UINT64_MAX;
    (void)atomic_compare_exchange_strong(&recorder->end_ticks, &open,
                                         flw_tsc_read(recorder->uses_tsc, true));
    atomic_store(&recorder->stage, FLW_RING_OVER);
}

fallow_status flw_recorder_finish(struct flw_recorder *recorder)
{
    atomic_store(&recorder->stage, FLW_RING_OVER);
    if (recorder->has_flusher) {
        flw_wakeup_signal(&recorder->wakeup);
        (void)pthread_join(recorder->flusher, NULL);
        recorder->has_flusher = false;
    }
    return end_file(recorder);
}

void flw_recorder_abandon(struct flw_recorder *recorder)
{
    bool is_child = (uint32_t)getpid() != recorder->process;
    if (is_child) {
        if (recorder->trace_file != NULL) {
            flw_trace_file_disown(recorder->trace_file);
        }
        flw_dumpsignal_forget(recorder->settings.dump_signal);
    } else if (recorder->has_flusher) {
        (void)pthread_detach(recorder->flusher);
    }
    atomic_store(&recorder->is_abandoned, true);
    atomic_store(&recorder->stage, FLW_RING_OVER);
    flw_wakeup_signal(&recorder->wakeup);
}
