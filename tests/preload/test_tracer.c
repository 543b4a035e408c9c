/* SPDX-License-Identifier: Apache-2.0
 *
 * Mode trace without a driver: the tracer's input is in the files, with the documented names, and
 * a process that is killed, forks or fills the disk loses no more than documented. */
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/runpage.h"
#include "preload/tracer.h"
#include "support/recording.h"

#define STREAM_A 0x1000
#define STREAM_B 0x2000

static char folder[] = "/tmp/fallow_tracer_XXXXXX";

/* Run a case in a process, because the tracer's state is per process. Returns the exit code, or
 * -SIGNAL. */
static int in_process(int (*body)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(folder) != 0) {
            _exit(99);
        }
        int code = body();
        fflush(NULL);
        _exit(code);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void drop(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void begin(const char *path)
{
    flw_tracer_begin(&(struct flw_tracer_settings){.path = path});
}

/* ---- contents of a record */

static void *hand_over(void *argument)
{
    (void)argument;
    for (uint64_t i = 0; i < 1000; i++) {
        flw_tracer_allocated(0, FLW_TRACER_ASYNC, 0x90000000 + i * 512, 512, STREAM_B);
    }
    return NULL;
}

static int record_two_threads(void)
{
    pthread_t other;
    begin("two.ftrace");
    flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x10000000, 1000, 0);
    flw_tracer_allocated(0, FLW_TRACER_PITCH, 0x20000000, 4096, 0);
    flw_tracer_allocated(0, FLW_TRACER_MANAGED, 0x30000000, 8192, 0);
    flw_tracer_failed(0, 1ull << 50, STREAM_A);
    if (pthread_create(&other, NULL, hand_over, NULL) != 0 || pthread_join(other, NULL) != 0) {
        return 1;
    }
    for (uint64_t i = 0; i < 1000; i++) {
        flw_tracer_freed(0, 0x90000000 + i * 512, STREAM_A);
    }
    flw_tracer_freed(0, 0x10000000, 0);
    flw_tracer_finish();
    flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x40000000, 1, 0); /* too late, and harmless */
    struct flw_tracer_counts counts;
    flw_tracer_sum(&counts);
    return counts.allocated_count >= 1003 && counts.freed_count == 1001 &&
                   counts.failed_count == 1 &&
                   counts.allocated_bytes >= 1000 + 4096 + 8192 + 512000 &&
                   counts.file_count == 1 && counts.failed_files == 0
               ? 0
               : 2;
}

TEST(two_threads_kinds_and_streams_are_on_record)
{
    assert_int_equal(in_process(record_two_threads), 0);
    struct flw_trace *trace = flw_recording_read(folder, "two.ftrace");
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_ALLOC), 1003);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), 1001);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_OOM), 1);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
    assert_int_equal(trace->stream_count, 3);
    assert_int_equal(trace->events[0].address, 0x10000000);
    assert_int_equal(trace->events[0].size_bytes, 1000);
    uint32_t tags = 0;
    for (size_t i = 0; i < trace->context_count; i++) {
        tags |= 1u << trace->contexts[i].tag;
    }
    assert_int_equal(tags & 0xE,
                     0xE); /* pitched, managed, stream-ordered; a trace begins with plain */
    assert_int_equal(trace->detail_count, 0); /* all details are unknown */
    flw_trace_destroy(trace);
    drop("two.ftrace");
}

/* ---- names */

static int record_places(void)
{
    begin("many.ftrace");
    flw_tracer_allocated(3, FLW_TRACER_PLAIN, 0x1000, 256, 0);
    flw_tracer_allocated(5, FLW_TRACER_PLAIN, 0x2000, 256, 0);
    flw_tracer_allocated(FLW_TRACER_HOST_PLACE, FLW_TRACER_HOST, 0x3000, 256, 0);
    flw_tracer_allocated(3, FLW_TRACER_PLAIN, 0x4000, 256, 0);
    flw_tracer_freed(5, 0x2000, 0);
    flw_tracer_finish();
    return 0;
}

TEST(each_device_and_host_memory_have_files_of_their_own)
{
    assert_int_equal(in_process(record_places), 0);
    struct flw_trace *first = flw_recording_read(folder, "many.ftrace"),
                     *second = flw_recording_read(folder, "many.dev5.ftrace"),
                     *host = flw_recording_read(folder, "many.host.ftrace");
    assert_int_equal(flw_recording_count(first, FLW_TRACE_ALLOC), 2);
    assert_int_equal(flw_recording_count(second, FLW_TRACE_ALLOC), 1);
    assert_int_equal(flw_recording_count(second, FLW_TRACE_FREE), 1);
    assert_int_equal(flw_recording_count(host, FLW_TRACE_ALLOC), 1);
    assert_int_equal(first->device, 3);
    assert_int_equal(second->device, 5);
    flw_trace_destroy(first);
    flw_trace_destroy(second);
    flw_trace_destroy(host);
    drop("many.ftrace");
    drop("many.dev5.ftrace");
    drop("many.host.ftrace");
}

static bool is_named(const char *path, unsigned place, unsigned number, const char *wanted)
{
    char out[FLW_FILENAME_BYTES], expected[256];
    struct flw_tracer_settings settings = {.path = path};
    snprintf(expected, sizeof expected, wanted, (int)getpid());
    bool is_right =
        flw_tracer_name_file(&settings, place, number, out) && strcmp(out, expected) == 0;
    if (!is_right) {
        fprintf(stderr, "'%s' instead of '%s'\n", out, expected);
    }
    return is_right;
}

static int name_files(void)
{
    static char page_memory[sizeof(struct flw_runpage)] __attribute__((aligned(64)));
    struct flw_runpage *page = (struct flw_runpage *)(void *)page_memory;
    char out[FLW_FILENAME_BYTES], taken[64];
    bool is_right = is_named("a.d/run", 0, 0, "a.d/run") &&
                    is_named("a.d/run", 1, 0, "a.d/run.dev1") &&
                    is_named("a.d/run.x", 0, 2, "a.d/run.3.x") &&
                    is_named("%p.run.x", FLW_TRACER_HOST_PLACE, 0, "%d.run.host.x") &&
                    is_named(".hidden", 1, 1, ".hidden.dev1.2");
    if (!is_right) {
        return 1;
    }
    /* A child sees that the page has the parent down as the writer. */
    bool is_first = flw_runpage_claim(page, FLW_RUNPAGE_TRACE, (int32_t)getpid());
    atomic_store(&page->writers[FLW_RUNPAGE_TRACE], (int32_t)getpid() + 1);
    if (!is_first || flw_runpage_claim(page, FLW_RUNPAGE_TRACE, (int32_t)getpid())) {
        return 2;
    }
    memset(taken, 'x', sizeof taken - 1);
    taken[sizeof taken - 1] = '\0';
    char *longest = calloc(1, FLW_FILENAME_BYTES);
    memset(longest, 'x', FLW_FILENAME_BYTES - 3);
    bool is_refused =
        !flw_tracer_name_file(&(struct flw_tracer_settings){.path = longest}, 1, 0, out);
    free(longest);
    return is_refused ? 0 : 3;
}

TEST(names_tell_processes_devices_and_numbers_apart)
{
    assert_int_equal(in_process(name_files), 0);
}

static int name_second(void)
{
    static char page_memory[sizeof(struct flw_runpage)] __attribute__((aligned(64)));
    struct flw_runpage *page = (struct flw_runpage *)(void *)page_memory;
    char out[FLW_FILENAME_BYTES], wanted[64];
    atomic_store(&page->writers[FLW_RUNPAGE_TRACE], 1);
    struct flw_tracer_settings settings = {.path = "run.ftrace", .page = page};
    snprintf(wanted, sizeof wanted, "run.%d.ftrace", (int)getpid());
    return flw_tracer_name_file(&settings, 0, 0, out) && strcmp(out, wanted) == 0 ? 0 : 1;
}

TEST(the_second_process_of_a_run_puts_its_number_into_the_name)
{
    assert_int_equal(in_process(name_second), 0);
}

/* Without a page: the file itself shows that it is being written. */
static int record_beside(void)
{
    int ends[2];
    char beside[64], byte = 0;
    begin("both.ftrace");
    flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x1000, 256, 0);
    if (pipe(ends) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        flw_tracer_forget();
        begin("both.ftrace");
        flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x2000, 512, 0);
        flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x3000, 512, 0);
        flw_tracer_finish();
        _exit(write(ends[1], &byte, 1) == 1 ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        return 2;
    }
    snprintf(beside, sizeof beside, "both.%d.ftrace", (int)child);
    flw_tracer_freed(0, 0x1000, 0);
    flw_tracer_finish();
    return rename(beside, "beside.ftrace") == 0 ? 0 : 3;
}

TEST(a_forked_child_leaves_the_file_alone_and_has_its_own)
{
#if defined(FLW_TSAN) || defined(__SANITIZE_ADDRESS__)
    skip(); /* after a fork beside threads ThreadSanitizer has no threads, and a lock of AddressSanitizer's
             * allocator (gcc 12) may be held for ever */
#endif
    assert_int_equal(in_process(record_beside), 0);
    struct flw_trace *parent = flw_recording_read(folder, "both.ftrace"),
                     *child = flw_recording_read(folder, "beside.ftrace");
    assert_int_equal(flw_recording_count(parent, FLW_TRACE_ALLOC), 1);
    assert_int_equal(flw_recording_count(parent, FLW_TRACE_FREE), 1);
    assert_int_equal(flw_recording_count(child, FLW_TRACE_ALLOC), 2);
    assert_int_equal(parent->unknown_free_count, 0);
    flw_trace_destroy(parent);
    flw_trace_destroy(child);
    drop("both.ftrace");
    drop("beside.ftrace");
}

/* ---- failures */

#define BEFORE_KILL 5000
#define AT_KILL     10

/* Wait until the records have been flushed, add a few more and die. */
static int record_and_die(void)
{
    struct stat facts;
    begin("killed.ftrace");
    for (uint64_t i = 0; i < BEFORE_KILL; i++) {
        flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x10000 + i * 4096, 4096, 0);
    }
    for (off_t before = -1; stat("killed.ftrace", &facts) == 0; before = facts.st_size) {
        if (facts.st_size > 2000 && facts.st_size == before) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 999999999}, NULL);
    }
    for (uint64_t i = 0; i < AT_KILL; i++) {
        flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x90000000 + i * 4096, 4096, 0);
    }
    (void)kill(getpid(), SIGKILL);
    return 0;
}

TEST(a_killed_process_loses_what_was_not_flushed_and_no_more)
{
    assert_int_equal(in_process(record_and_die), -SIGKILL);
    struct flw_trace *trace = flw_recording_read(folder, "killed.ftrace");
    size_t count = flw_recording_count(trace, FLW_TRACE_ALLOC);
    assert_in_range(count, BEFORE_KILL, BEFORE_KILL + AT_KILL);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
    flw_trace_destroy(trace);
    drop("killed.ftrace");
}

#define TURNING 4

static void *turn_between_places(void *argument)
{
    uint64_t base = (uint64_t)(uintptr_t)argument << 32;
    for (uint64_t i = 1; i <= 20000; i++) {
        unsigned place = (unsigned)(i / 16 % 3);
        flw_tracer_allocated(place, FLW_TRACER_PLAIN, base + i * 4096, 4096, i / 64 % 5);
        flw_tracer_freed(place, base + i * 4096, 0);
    }
    return NULL;
}

/* The second file's disk is full at once, and the process ends while threads record. */
static int record_turning(void)
{
    pthread_t threads[TURNING];
    struct flw_tracer_counts counts;
    if (symlink("/dev/full", "turn.dev1.ftrace") != 0 ||
        freopen("/dev/null", "w", stderr) == NULL) {
        return 1;
    }
    begin("turn.ftrace");
    flw_tracer_allocated(0, FLW_TRACER_PLAIN, 4096, 4096, 0);
    for (uintptr_t i = 0; i < TURNING; i++) {
        if (pthread_create(&threads[i], NULL, turn_between_places, (void *)(i + 1)) != 0) {
            return 2;
        }
    }
    (void)pthread_join(threads[0], NULL);
    flw_tracer_finish();
    for (uintptr_t i = 1; i < TURNING; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    flw_tracer_sum(&counts);
    return counts.failed_files == 1 && counts.file_count == 2 && counts.allocated_count >= 20001
               ? 0
               : 3;
}

TEST(threads_may_turn_while_files_fail_and_end)
{
    assert_int_equal(in_process(record_turning), 0);
    struct flw_trace *first = flw_recording_read(folder, "turn.ftrace"),
                     *third = flw_recording_read(folder, "turn.dev2.ftrace");
    assert_true(flw_recording_count(first, FLW_TRACE_ALLOC) > 1000);
    assert_true(flw_recording_count(third, FLW_TRACE_ALLOC) > 1000);
    flw_trace_destroy(first);
    flw_trace_destroy(third);
    drop("turn.ftrace");
    drop("turn.dev1.ftrace");
    drop("turn.dev2.ftrace");
}

static int record_to(const char *path, const char *line)
{
    char text[512] = "";
    int ends[2], saved = dup(STDERR_FILENO);
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) {
        return 1;
    }
    begin(path);
    errno = 77;
    for (uint64_t i = 0; i < 300000; i++) { /* more than a ring holds */
        flw_tracer_allocated(0, FLW_TRACER_PLAIN, 0x10000 + i * 4096, 4096, 0);
    }
    bool keeps_errno = errno == 77;
    flw_tracer_finish();
    (void)dup2(saved, STDERR_FILENO);
    (void)close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    char *newline = strchr(text, '\n');
    struct flw_tracer_counts counts;
    flw_tracer_sum(&counts);
    bool is_one_line = length > 0 && newline != NULL && newline[1] == '\0';
    if (!is_one_line || strstr(text, line) == NULL) {
        fprintf(stderr, "'%s' is not in: %s\n", line, text);
        return 2;
    }
    return keeps_errno && counts.failed_files == 1 && counts.allocated_count == 300000 ? 0 : 3;
}

static int record_to_full_disk(void)
{
    return record_to("/dev/full", "No space left on device; the program continues");
}

static int record_to_nowhere(void)
{
    return record_to(
        "no/such/folder/a.ftrace",
        "cannot create no/such/folder/a.ftrace: No such file or directory; the program "
        "continues");
}

static int record_to_limited_file(void)
{
    struct rlimit limit = {.rlim_cur = 20000, .rlim_max = 20000};
    (void)signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit) == 0
               ? record_to("limited.ftrace", "File too large; the program continues")
               : 9;
}

TEST(a_full_disk_ends_the_recording_with_one_line)
{
    assert_int_equal(in_process(record_to_full_disk), 0);
    assert_int_equal(in_process(record_to_limited_file), 0);
    struct flw_trace *trace =
        flw_recording_read(folder, "limited.ftrace"); /* as much as there was room for */
    flw_trace_destroy(trace);
    drop("limited.ftrace");
}

TEST(a_folder_that_is_not_there_ends_it_with_one_line)
{
    assert_int_equal(in_process(record_to_nowhere), 0);
    assert_false(exists("no"));
}

static int make_folder(void **state)
{
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    return rmdir(folder); /* nothing else was left there */
}

FLW_TEST_MAIN(make_folder, remove_folder)
