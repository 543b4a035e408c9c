/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how recordings begin and end: configs, full disks, ends of pools, forks, kills, while threads
 * work.
 */
#include "trace/formats/formats.h"
#include "unit/record/test_recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

TEST(a_full_disk_ends_the_recording_and_not_the_pool)
{
    begin_bed();
    fallow_record_config config = file_config();
    config.path = "/dev/full";
    fallow_status status = fallow_record_start(bed.api.pool, &config, &bed.recorder);
    if (status == FALLOW_OK) { /* the first write is small and may be delayed */
        void *ptr = api_alloc(&bed.api, 5000, bed.api.stream);
        assert_int_equal(fallow_record_dump(bed.recorder, NULL), FALLOW_IO);
        free_block(ptr, bed.api.stream);
        assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_IO);
    } else {
        assert_int_equal(status, FALLOW_IO);
    }
    assert_non_null(strstr(bed.api.log, "/dev/full"));
    assert_non_null(strstr(bed.api.log, "No space left"));
    free_block(api_alloc(&bed.api, 5000, bed.api.stream), bed.api.stream);
    start(0, 0); /* recording can start again */
    (void)stop_and_read();
    end_bed();
}

/* ---- beginning and end */

TEST(a_bad_config_is_refused_and_leaves_no_recorder)
{
    begin_bed();
    fallow_recorder *recorder = NULL;
    fallow_record_config good = file_config(), bad = good;
    assert_int_equal(fallow_record_start(bed.api.pool, &good, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_record_start(NULL, &good, &recorder), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_record_start(bed.api.pool, NULL, &recorder), FALLOW_INVALID_ARGUMENT);
    bad.flags = 1u << 20;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad.flags = FALLOW_RECORD_RING_ONLY | FALLOW_RECORD_BLOCK_WHEN_FULL;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.path = NULL;
    bad.dump_signal = SIGUSR1;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad.dump_signal = 0;
    bad.flags = FALLOW_RECORD_DUMP_ON_OOM;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad.flags = 0; /* "path NULL: a flight recorder, with RING_ONLY or without" */
    assert_ok(fallow_record_start(bed.api.pool, &bad, &recorder));
    assert_ok(fallow_record_dump(recorder, bed.path));
    assert_int_equal(access(bed.path, F_OK), 0);
    assert_int_equal(unlink(bed.path), 0);
    assert_ok(fallow_record_stop(recorder));
    bad = good;
    bad.dump_signal = SIGKILL;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.ring_bytes = (size_t)1 << 40;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_INVALID_ARGUMENT);
    bad = good;
    bad.path = "/nowhere/at/all.ftrace";
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_IO);
    assert_non_null(strstr(bed.api.log, "/nowhere/at/all.ftrace"));
    bad = good;
    bad.struct_size = 0;
    assert_int_equal(fallow_record_start(bed.api.pool, &bad, &recorder), FALLOW_VERSION);
    assert_null(recorder);
    start(0, 0);
    assert_int_equal(fallow_record_start(bed.api.pool, &good, &recorder), FALLOW_BUSY);
    assert_int_equal(fallow_record_dump(bed.recorder, bed.path), FALLOW_INVALID_ARGUMENT);
    (void)stop_and_read();
    assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_INVALID_RECORDER);
    assert_int_equal(fallow_record_dump(bed.recorder, NULL), FALLOW_INVALID_RECORDER);
    assert_int_equal(fallow_record_mark(bed.recorder, "x"), FALLOW_INVALID_RECORDER);
    assert_int_equal(fallow_record_stop(NULL), FALLOW_INVALID_RECORDER);
    end_bed();
}

struct ending {
    fallow_recorder *recorder;
    atomic_bool is_over;
    fallow_status status;
};

static void *stop_meanwhile(void *argument)
{
    struct ending *ending = argument;
    ending->status = fallow_record_stop(ending->recorder);
    atomic_store(&ending->is_over, true);
    return NULL;
}

/* A pipe without a reader so far, so that the end of the recording waits. */
static int start_into_pipe(void)
{
    assert_int_equal(mkfifo(bed.path, 0600), 0);
    int fd = open(bed.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_SETPIPE_SZ, 4096) > 0);
    start(0, 0);
    for (int i = 0; i < 20000; i++) {
        free_block(api_alloc(&bed.api, 5000, bed.api.stream), bed.api.stream);
    }
    return fd;
}

static void read_until_over(int fd, const struct ending *ending)
{
    char bytes[4096];
    while (!atomic_load(&ending->is_over)) {
        if (read(fd, bytes, sizeof bytes) <= 0) {
            usleep(100);
        }
    }
}

/* If the file fails, an ending recording detaches caches; it must not detach caches of the next
 * recording. */
TEST(no_recording_begins_before_another_has_ended)
{
    struct ending ending = {.status = FALLOW_OK};
    pthread_t thread;
    begin_bed();
    int fd = start_into_pipe();
    ending.recorder = bed.recorder;
    fallow_record_config config = file_config();
    config.path = NULL;
    assert_int_equal(pthread_create(&thread, NULL, stop_meanwhile, &ending), 0);
    fallow_status status = FALLOW_BUSY;
    for (int i = 0; i < 100 && status == FALLOW_BUSY; i++) {
        usleep(1000);
        status = fallow_record_start(bed.api.pool, &config, &bed.recorder);
    }
    assert_false(atomic_load(&ending.is_over));
    read_until_over(fd, &ending);
    pthread_join(thread, NULL);
    close(fd);
    assert_ok(ending.status);
    assert_int_equal(status, FALLOW_BUSY);
    assert_ok(fallow_record_start(bed.api.pool, &config, &bed.recorder));
    assert_ok(fallow_record_stop(bed.recorder));
    end_bed();
}

TEST(the_end_of_the_pool_ends_its_recording)
{
    begin_bed();
    start(0, 0);
    free_block(api_alloc(&bed.api, 5000, bed.api.stream), bed.api.stream);
    fallow_pool_destroy(bed.api.pool);
    bed.api.pool = NULL;
    assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_INVALID_RECORDER);
    struct flw_trace *trace = read_trace();
    assert_null(trace->truncation);
    assert_int_equal(trace->event_count, 2);
    end_bed();
}

TEST(the_child_of_a_fork_leaves_the_file_to_its_parent)
{
    begin_bed();
    start(0, 0);
    void *ptr = api_alloc(&bed.api, 5000, bed.api.stream);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        void *none = NULL;
        int wrong = fallow_record_mark(bed.recorder, "child") != FALLOW_INVALID_RECORDER ||
                    fallow_record_stop(bed.recorder) != FALLOW_INVALID_RECORDER ||
                    fallow_alloc(bed.api.pool, 1, bed.api.stream, &none) != FALLOW_INVALID_POOL;
        _exit(wrong);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free_block(ptr, bed.api.stream);
    struct flw_trace *trace = stop_and_read();
    assert_int_equal(trace->event_count, 2);
    end_bed();
}

/* ---- a killed program */

#define PAIRS 3000 /* between two flushes */

/* Report the flushed records to the parent, flush after flush, until killed. */
static void record_until_killed(_Atomic uint64_t *flushed)
{
    flw_sim_renew();
    api_begin_with_pool(&bed.api);
    start(FALLOW_RECORD_BLOCK_WHEN_FULL, 0);
    for (uint64_t count = 0;;) {
        for (int i = 0; i < PAIRS; i++, count += 2) {
            free_block(api_alloc(&bed.api, 3000, bed.api.stream), bed.api.stream);
        }
        assert_ok(fallow_record_dump(bed.recorder, NULL));
        atomic_store(flushed, count);
    }
}

/* Flushed records are complete; of later ones at most one chunk is missing. */
TEST(a_killed_program_loses_at_most_what_was_in_no_chunk)
{
    _Atomic uint64_t *flushed =
        mmap(NULL, sizeof *flushed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)flushed != MAP_FAILED);
    for (unsigned round = 0; round < 8; round++) {
        make_folder();
        atomic_store(flushed, 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            record_until_killed(flushed);
        }
        while (atomic_load(flushed) < (uint64_t)2 * PAIRS * (round + 1)) {
            usleep(round * 100);
            assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        }
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        struct flw_trace *trace = read_trace();
        assert_non_null(trace->truncation); /* it has no end */
        assert_in_range(trace->event_count, atomic_load(flushed),
                        atomic_load(flushed) + (uint64_t)2 * PAIRS);
        assert_int_equal(trace->unknown_free_count + trace->lost_free_count, 0);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
        drop_folder();
    }
    assert_int_equal(munmap((void *)flushed, sizeof *flushed), 0);
}

/* Without a flush by the program: a child records and is killed; the calls up to shortly before
 * are in the file. */
TEST(what_a_killed_program_did_some_time_before_is_there)
{
    make_folder();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        flw_sim_renew();
        api_begin_with_pool(&bed.api);
        start(0, 0);
        for (int i = 0;; i++) {
            free_block(api_alloc(&bed.api, 3000, bed.api.stream), bed.api.stream);
            if (i >= PAIRS) {
                usleep(100);
            }
        }
    }
    size_t seen = 0;
    while (seen < 2 * PAIRS) {
        struct flw_trace *trace = NULL;
        char message[FLW_TRACE_MESSAGE_BYTES];
        usleep(5000);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        if (flw_trace_read(bed.path, -1, &trace, message)) {
            seen = trace->event_count;
            flw_trace_destroy(trace);
        }
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    struct flw_trace *trace = read_trace();
    assert_non_null(trace->truncation); /* it has no end */
    assert_true(trace->event_count >= seen);
    assert_int_equal(trace->unknown_free_count, 0);
    drop_folder();
}

/* ---- threads */

struct worker {
    atomic_bool *is_over;
    CUstream stream;
    _Atomic(void *) *exchange; /* blocks exchanged between threads */
    atomic_uint_least64_t allocated;
    unsigned seed;
};

#define EXCHANGES 64

static void *work(void *argument)
{
    struct worker *worker = argument;
    fallow_pool *pool = bed.api.pool;
    while (!atomic_load(worker->is_over)) {
        void *ptr = NULL;
        unsigned r = (unsigned)rand_r(&worker->seed);
        size_t size = r % 16 == 0 ? 2 * MIB : (size_t)256 << (r % 8);
        if (fallow_alloc(pool, size, worker->stream, &ptr) != FALLOW_OK) {
            break;
        }
        atomic_fetch_add_explicit(&worker->allocated, 1, memory_order_relaxed);
        ptr = atomic_exchange(&worker->exchange[r / 16 % EXCHANGES], ptr);
        if (fallow_free(pool, ptr, worker->stream) != FALLOW_OK) {
            break;
        }
    }
    return NULL;
}

static uint64_t count_allocated(struct worker *workers, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += atomic_load(&workers[i].allocated);
    }
    return sum;
}

/* Wait 3 ms, or longer on a busy machine, until some of them have made progress. */
static void let_them_work(struct worker *workers, int count)
{
    uint64_t before = count_allocated(workers, count);
    do {
        usleep(3000);
    } while (count_allocated(workers, count) < before + 100);
}

/* Threads hand blocks to one another while recordings begin and end. */
TEST(recordings_begin_and_end_while_threads_work)
{
    enum {
        THREADS = 4,
        RECORDINGS = 12
    };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    atomic_bool is_over = false;
    _Atomic(void *) exchange[EXCHANGES] = {NULL};
    begin_bed();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.is_over = &is_over,
                                     .stream = i % 2 == 0 ? bed.api.stream : bed.api.other,
                                     .exchange = exchange,
                                     .seed = (unsigned)i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < RECORDINGS; i++) {
        bool is_ring = i % 3 == 2;
        start(is_ring ? FALLOW_RECORD_RING_ONLY : FALLOW_RECORD_BLOCK_WHEN_FULL,
              is_ring ? MIB : 65536);
        let_them_work(workers, THREADS);
        assert_ok(fallow_record_mark(bed.recorder, "half"));
        assert_ok(fallow_record_dump(bed.recorder, NULL));
        let_them_work(workers, THREADS);
        if (is_ring) {
            assert_ok(fallow_record_dump(bed.recorder, NULL));
        }
        assert_ok(fallow_record_stop(bed.recorder));
        struct flw_trace *trace = read_trace();
        assert_null(trace->truncation);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
        /* a call in progress at the start of the recording may lack the allocation */
        assert_in_range(trace->unknown_free_count, 0, THREADS);
        assert_in_range(trace->lost_free_count, 0, THREADS);
        assert_true(trace->event_count > 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < EXCHANGES; i++) {
        free_block(exchange[i], bed.api.stream);
    }
    assert_ok(fallow_pool_validate(bed.api.pool));
    assert_int_equal(api_stats(&bed.api).live_count, 0);
    end_bed();
}

/* Last, because the simulated driver stays open, and the child of a fork could not use it. */
TEST(an_abandoned_pool_leaves_a_file_with_an_end)
{
    begin_bed();
    start(0, 0);
    (void)api_alloc(&bed.api, 5000, bed.api.stream);
    fallow_pool_abandon(bed.api.pool);
    assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_INVALID_RECORDER);
    for (bool is_whole = false; !is_whole; usleep(1000)) { /* the thread ends it */
        struct flw_trace *trace = read_trace();
        is_whole = trace->truncation == NULL;
        assert_true(!is_whole || trace->event_count == 1);
    }
    drop_folder();
    flw_sim_close(&bed.api.sim);
}

FLW_TEST_MAIN(NULL, NULL)
