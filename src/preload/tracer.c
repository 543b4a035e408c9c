/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/tracer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/bits.h"
#include "preload/log.h"
#include "preload/runpage.h"
#include "record/recorder.h"

#define PLACES     (FLW_TRACER_DEVICES + 1)
#define RING_BYTES (UINT64_C(4) << 20)
#define NO_PLACE   UINT32_MAX
#define NO_STREAM  UINT64_MAX

/* State of a thread for writing records. Passes to the next thread with the token. */
struct thread {
    _Atomic uint32_t place; /* of the ring and the stream's number; NO_PLACE: look up again */
    uint32_t number;        /* of `stream` in that recording */
    uint64_t stream;        /* the last one; NO_STREAM */
    struct flw_ring *ring;  /* NULL: no memory for one, or the recording has ended */
    struct flw_recorder *recorder;
    uintptr_t token;
    _Atomic uint64_t allocated_count, allocated_bytes, freed_count, refused_count, failed_count;
    struct thread *next;
};

enum {
    UNBEGUN,
    RUNNING,
    OVER
};

static struct {
    _Atomic int stage;
    struct flw_tracer_settings settings;
    pthread_mutex_t making;
    struct flw_recorder *_Atomic recorders[PLACES]; /* NULL: not yet, or it could not be
                                                        created */
    atomic_bool is_refused[PLACES];                 /* no more records are written there */
    atomic_bool has_failed[PLACES];                 /* creation or writing failed */
    struct thread *_Atomic threads;
    atomic_int first_place, is_numbered; /* for names; -1: not decided */
    int lock_fd;                         /* keeps the first file locked if there is no page; -1 */
} tracer = {
    .making = PTHREAD_MUTEX_INITIALIZER, .first_place = -1, .is_numbered = -1, .lock_fd = -1};

static _Thread_local struct thread *self __attribute__((tls_model("initial-exec")));

/* ---- files */

/* True if another process writes it now; otherwise this process holds it until the end. */
static bool is_held(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)close(fd);
        return true;
    }
    tracer.lock_fd = fd; /* -1: the next open reports the reason */
    return false;
}

/* Write the part before the ending: the process id, the place, a number. */
static void describe(const char *process, unsigned place, unsigned number, char *out, size_t room)
{
    int expected = -1;
    char where[16] = "", which[16] = "";
    if (place == FLW_TRACER_HOST_PLACE) {
        snprintf(where, sizeof where, ".host");
    } else if (!atomic_compare_exchange_strong(&tracer.first_place, &expected, (int)place) &&
               expected != (int)place) {
        snprintf(where, sizeof where, ".dev%u", place);
    }
    if (number > 0) {
        snprintf(which, sizeof which, ".%u", number + 1);
    }
    snprintf(out, room, "%s%s%s", process, where, which);
}

bool flw_tracer_name_file(const struct flw_tracer_settings *settings, unsigned place,
                          unsigned number, char out[FLW_FILENAME_BYTES])
{
    char process[16], insert[64];
    snprintf(process, sizeof process, ".%d", (int)getpid());
    int decided = atomic_load(&tracer.is_numbered);
    if (strstr(settings->path, "%p") != NULL) {
        decided = 0;
    } else if (decided < 0 && settings->page != NULL) {
        decided = !flw_runpage_claim(settings->page, FLW_RUNPAGE_TRACE, (int32_t)getpid());
    }
    describe(decided == 1 ? process : "", place, number, insert, sizeof insert);
    if (!flw_filename_compose(settings->path, insert, (int)getpid(), out)) {
        return false;
    }
    if (decided < 0) {
        decided = is_held(out);
        describe(decided == 1 ? process : "", place, number, insert, sizeof insert);
    }
    atomic_store(&tracer.is_numbered, decided);
    return flw_filename_compose(settings->path, insert, (int)getpid(), out);
}

/* ---- recordings */

static void look_up(void *context, struct flw_initial_blocks *initial, struct flw_names *names)
{
    (void)context; /* allocations before the first recorded call are unknown */
    (void)initial;
    (void)names;
}

/* Let no more records be written there, except those under way. A thread that turns to the place
 * meanwhile sees that it is refused, or looks it up again. */
static void close_place(unsigned place)
{
    atomic_store(&tracer.is_refused[place], true);
    struct thread *thread = atomic_load_explicit(&tracer.threads, memory_order_acquire);
    for (; thread != NULL; thread = thread->next) {
        atomic_store(&thread->place, NO_PLACE);
    }
}

static void detach(void *context)
{
    atomic_bool *has_failed = context;
    atomic_store(has_failed, true);
    close_place((unsigned)(has_failed - tracer.has_failed));
}

static void log_line(void *context, bool is_error, const char *line)
{
    (void)context;
    if (is_error) {
        flw_log_line("%s; the program continues", line);
    }
}

/* For a new recording. NULL: no stacks are wanted, or there is no memory. */
static struct flw_callstacks *take_callstacks(void)
{
    struct flw_callstacks *all = tracer.settings.stack_depth > 0 ? flw_callstacks_shared() : NULL;
    if (all == NULL && tracer.settings.stack_depth > 0) {
        flw_log_line("recording: no memory for call stacks; the program continues without them");
    } else if (all != NULL && !flw_callstacks_are_quick(all)) {
        flw_log_line("recording: each call stack takes a few microseconds; with "
                     "libunwind.so.8 (package libunwind8) about 0.3");
    }
    return all;
}

static struct flw_recorder *make_recorder(unsigned place)
{
    char path[FLW_FILENAME_BYTES];
    struct flw_recorder *recorder = NULL;
    bool is_named = flw_tracer_name_file(&tracer.settings, place, 0, path);
    struct flw_recorder_settings settings = {.path = path,
                                             .ring_bytes = RING_BYTES,
                                             .is_fenced = !flw_asym_register(),
                                             .device = place < FLW_TRACER_DEVICES ? place : 0,
                                             .callstacks = take_callstacks(),
                                             .host = {.context = &tracer.has_failed[place],
                                                      .look_up = look_up,
                                                      .detach = detach,
                                                      .log = log_line}};
    fallow_status status = FALLOW_INVALID_ARGUMENT;
    if (is_named) {
        status = flw_recorder_create(&settings, &recorder);
    }
    if (status == FALLOW_OK) {
        status = flw_recorder_begin(recorder);
    }
    if (status != FALLOW_OK) {
        if (status != FALLOW_IO) { /* logged already */
            flw_log_line("recording: cannot begin %s: %s; the program continues",
                         is_named ? path : "a file, the name is too long",
                         fallow_status_message(status));
        }
        detach(&tracer.has_failed[place]);
        recorder = NULL; /* the rest stays: the thread may be running */
    }
    return recorder;
}

/* NULL: creation failed, or the recording has ended. */
static struct flw_recorder *recorder_of(unsigned place)
{
    struct flw_recorder *recorder =
        atomic_load_explicit(&tracer.recorders[place], memory_order_acquire);
    if (recorder == NULL && tracer.settings.path != NULL &&
        !atomic_load(&tracer.is_refused[place])) {
        pthread_mutex_lock(&tracer.making);
        recorder = atomic_load(&tracer.recorders[place]);
        if (recorder == NULL && !atomic_load(&tracer.is_refused[place]) &&
            atomic_load(&tracer.stage) == RUNNING) {
            recorder = make_recorder(place);
            atomic_store_explicit(&tracer.recorders[place], recorder, memory_order_release);
        }
        pthread_mutex_unlock(&tracer.making);
    }
    return atomic_load(&tracer.is_refused[place]) ? NULL : recorder;
}

/* ---- threads */

static struct thread *find_thread(void)
{
    uintptr_t token = (uintptr_t)&self;
    struct thread *thread = atomic_load_explicit(&tracer.threads, memory_order_acquire);
    while (thread != NULL && thread->token != token) {
        thread = thread->next;
    }
    if (thread == NULL) {
        thread = calloc(1, sizeof *thread);
        if (thread == NULL) {
            return NULL;
        }
        thread->token = token;
        thread->next = atomic_load(&tracer.threads);
        while (!atomic_compare_exchange_weak(&tracer.threads, &thread->next, thread)) {
        }
    }
    atomic_store(&thread->place, NO_PLACE);
    return thread;
}

/* Enter a place's recording, if the thread's last record was in another. */
static __attribute__((noinline)) void turn_to(struct thread *thread, unsigned place)
{
    int saved = errno;
    atomic_store(&thread->place, place);
    thread->stream = NO_STREAM;
    thread->recorder = recorder_of(place);
    thread->ring =
        thread->recorder != NULL ? flw_recorder_ring(thread->recorder, thread->token) : NULL;
    if (thread->recorder != NULL && thread->ring == NULL) {
        atomic_fetch_add(&thread->recorder->unheard, 1);
    }
    errno = saved;
}

static __attribute__((noinline)) struct thread *own_thread(void)
{
    int saved = errno;
    if (atomic_load_explicit(&tracer.stage, memory_order_acquire) == RUNNING) {
        self = find_thread();
    }
    errno = saved;
    return self;
}

static void count(_Atomic uint64_t *what, uint64_t by)
{
    atomic_store_explicit(what, atomic_load_explicit(what, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

static __attribute__((noinline)) void turn_to_stream(struct thread *thread, uint64_t stream)
{
    thread->stream = stream;
    thread->number = flw_names_stream(&thread->recorder->names, stream);
}

/* Before any decision about a record: Python code that runs meanwhile may record too. */
static inline uint32_t stack_here(void)
{
    bool is_on = tracer.settings.path != NULL &&
                 atomic_load_explicit(&tracer.stage, memory_order_acquire) == RUNNING;
    unsigned depth = is_on ? tracer.settings.stack_depth : 0;
    struct flw_callstacks *all = FLW_LIKELY(depth == 0) ? NULL : flw_callstacks_shared();
    return all != NULL ? flw_callstacks_here(all, depth, tracer.settings.enters_python) : 0;
}

static void put(struct thread *thread, enum flw_trace_op op, unsigned place,
                const struct flw_ring_entry *wanted, uint64_t stream, uint32_t stack)
{
    if (FLW_UNLIKELY(atomic_load_explicit(&thread->place, memory_order_relaxed) != place)) {
        turn_to(thread, place);
    }
    if (FLW_UNLIKELY(thread->ring == NULL)) {
        return;
    }
    if (FLW_UNLIKELY(thread->stream != stream)) {
        turn_to_stream(thread, stream);
    }
    struct flw_ring_entry entry = *wanted;
    entry.sizes |= (uint64_t)thread->number << FLW_RING_SIZE_BITS;
    entry.rest |= (uint64_t)op;
    if (stack != 0 && flw_ring_tell_stack(thread->ring, stack)) {
        entry.rest |= FLW_RING_STACK_BIT;
    }
    flw_ring_put(thread->ring, &entry, true);
}

/* NULL: no memory, or there is nothing to record any more. */
static inline struct thread *thread_here(void)
{
    struct thread *thread = self;
    return FLW_LIKELY(thread != NULL) ? thread : own_thread();
}

void flw_tracer_allocated(unsigned place, enum flw_tracer_kind kind, uint64_t address,
                          uint64_t bytes, uint64_t stream)
{
    uint32_t stack = stack_here();
    struct thread *thread = thread_here();
    if (thread != NULL) {
        struct flw_ring_entry entry = {address, flw_min(bytes, FLW_RING_SIZE_MAX),
                                       (uint64_t)kind << 32};
        put(thread, FLW_TRACE_ALLOC, place, &entry, stream, stack);
        count(&thread->allocated_count, 1);
        count(&thread->allocated_bytes, bytes);
    }
}

void flw_tracer_freed(unsigned place, uint64_t address, uint64_t stream)
{
    struct thread *thread = thread_here();
    if (thread != NULL) {
        struct flw_ring_entry entry = {address, 0, 0};
        put(thread, FLW_TRACE_FREE, place, &entry, stream, 0);
        count(&thread->freed_count, 1);
    }
}

void flw_tracer_refused(void)
{
    struct thread *thread = thread_here();
    if (thread != NULL) {
        count(&thread->freed_count, UINT64_MAX);
        count(&thread->refused_count, 1);
    }
}

void flw_tracer_failed(unsigned place, uint64_t bytes, uint64_t stream)
{
    uint32_t stack = stack_here();
    struct thread *thread = thread_here();
    if (thread != NULL) {
        struct flw_ring_entry entry = {FLW_TRACE_UNKNOWN, flw_min(bytes, FLW_RING_SIZE_MAX),
                                       (uint64_t)UINT32_MAX << 32};
        put(thread, FLW_TRACE_OOM, place, &entry, stream, stack);
        count(&thread->failed_count, 1);
    }
}

uint64_t flw_tracer_thread_stream(void)
{
    return (uint64_t)(uintptr_t)&self;
}

/* ---- begin and end */

void flw_tracer_begin(const struct flw_tracer_settings *settings)
{
    tracer.settings = *settings;
    atomic_store_explicit(&tracer.stage, RUNNING, memory_order_release);
}

/* The rings stay: a thread may be inside one. */
void flw_tracer_finish(void)
{
    int running = RUNNING;
    if (!atomic_compare_exchange_strong(&tracer.stage, &running, OVER)) {
        return;
    }
    for (unsigned place = 0; place < PLACES; place++) {
        struct flw_recorder *recorder = atomic_load(&tracer.recorders[place]);
        if (recorder != NULL) {
            flw_recorder_close(recorder);
            close_place(place);
            (void)flw_recorder_finish(recorder);
        }
    }
}

void flw_tracer_forget(void)
{
    atomic_store(&tracer.stage, UNBEGUN);
    for (unsigned place = 0; place < PLACES; place++) {
        struct flw_recorder *recorder = atomic_exchange(&tracer.recorders[place], NULL);
        if (recorder != NULL) {
            flw_recorder_abandon(recorder);
        }
        atomic_store(&tracer.is_refused[place], false);
        atomic_store(&tracer.has_failed[place], false);
    }
    if (tracer.lock_fd >= 0) {
        (void)close(tracer.lock_fd); /* the parent still holds the lock */
        tracer.lock_fd = -1;
    }
    atomic_store(&tracer.first_place, -1);
    atomic_store(&tracer.is_numbered, -1);
    atomic_store(&tracer.threads, NULL);
    flw_callstacks_forget();
    self = NULL;
    pthread_mutex_init(&tracer.making, NULL);
}

void flw_tracer_sum(struct flw_tracer_counts *out)
{
    *out = (struct flw_tracer_counts){0};
    struct thread *thread = atomic_load_explicit(&tracer.threads, memory_order_acquire);
    for (; thread != NULL; thread = thread->next) {
        out->allocated_count +=
            atomic_load_explicit(&thread->allocated_count, memory_order_relaxed);
        out->allocated_bytes +=
            atomic_load_explicit(&thread->allocated_bytes, memory_order_relaxed);
        out->freed_count += atomic_load_explicit(&thread->freed_count, memory_order_relaxed);
        out->refused_count += atomic_load_explicit(&thread->refused_count, memory_order_relaxed);
        out->failed_count += atomic_load_explicit(&thread->failed_count, memory_order_relaxed);
    }
    for (unsigned place = 0; place < PLACES; place++) {
        bool has_failed = atomic_load(&tracer.has_failed[place]);
        out->file_count += !has_failed && atomic_load(&tracer.recorders[place]) != NULL;
        out->failed_files += has_failed;
    }
}
