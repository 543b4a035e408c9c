/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stats file: files that a reader refuses, permission to remove files, and no trust in
 * any file's contents. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "publish/stats_file_lock.h"

#include "support/emulator.h"
#include "support/test.h"

#define BODY_OFFSET FLW_STATS_FILE_HEADER_BYTES

static char folder[64];
static struct flw_stats_file_name self;
static unsigned char scratch[FLW_STATS_FILE_BODY_BYTES];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/fallow-board-XXXXXX");
    self = (struct flw_stats_file_name){.user = geteuid(), .process = getpid()};
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void post(struct flw_stats_file *stats_file)
{
    char message[FLW_STATS_FILE_MESSAGE_BYTES] = "";
    if (!flw_stats_file_post(stats_file, folder, message)) {
        fail_msg("%s", message);
    }
}

static enum flw_stats_file_state open_state(const struct flw_stats_file_name *name)
{
    struct flw_stats_file_reader reader;
    enum flw_stats_file_state state = flw_stats_file_open(&reader, folder, name);
    if (state == FLW_STATS_FILE_OK) {
        flw_stats_file_close(&reader);
    }
    return state;
}

static const char *path_of(const struct flw_stats_file_name *name)
{
    static char path[FLW_STATS_FILE_PATH_BYTES];
    assert_true(flw_stats_file_path(path, folder, name));
    return path;
}

static void poke(const char *path, off_t offset, const void *bytes, size_t count)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, bytes, count, offset), (ssize_t)count);
    close(file);
}

/* ---- the body */

TEST(an_answer_is_read_as_it_was_posted)
{
    struct flw_stats_file stats_file;
    struct flw_stats_file_reader reader;
    size_t count = 0;
    post(&stats_file);
    assert_int_equal(flw_stats_file_open(&reader, folder, &self), FLW_STATS_FILE_OK);
    assert_int_equal(reader.process, getpid());
    assert_false(flw_stats_file_is_asked(&stats_file));
    assert_int_equal(flw_stats_file_ask(&reader, 1000000), FLW_STATS_FILE_SILENT);
    assert_true(flw_stats_file_is_asked(&stats_file));
    flw_stats_file_answer(&stats_file, flw_stats_file_question(&stats_file), "a bulletin", 10);
    assert_false(flw_stats_file_is_asked(&stats_file));
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_OK);
    assert_int_equal(count, 10);
    assert_memory_equal(scratch, "a bulletin", 10);
    memset(scratch, 'x', sizeof scratch);
    flw_stats_file_answer(&stats_file, flw_stats_file_question(&stats_file), scratch,
                          sizeof scratch);
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_OK);
    assert_int_equal(count, sizeof scratch);
    flw_stats_file_close(&reader);
    flw_stats_file_remove(&stats_file);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_ABSENT);
}

TEST(a_torn_page_is_refused)
{
    struct flw_stats_file stats_file;
    struct flw_stats_file_reader reader;
    size_t count = 0;
    post(&stats_file);
    flw_stats_file_answer(&stats_file, 1, "the whole of it", 15);
    assert_int_equal(flw_stats_file_open(&reader, folder, &self), FLW_STATS_FILE_OK);
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_OK);
    for (off_t at = 0; at < 15; at += 7) { /* half of an older one: any byte of it suffices */
        unsigned char *body = (unsigned char *)stats_file.header + BODY_OFFSET;
        body[at] ^= 1;
        assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_TORN);
        body[at] ^= 1;
    }
    atomic_fetch_add(&stats_file.header->sequence, 1); /* a write is in progress */
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_TORN);
    atomic_fetch_sub(&stats_file.header->sequence, 1);
    stats_file.header->body_bytes = FLW_STATS_FILE_BODY_BYTES + 1;
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_TORN);
    stats_file.header->body_bytes = 15;
    assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_OK);
    flw_stats_file_close(&reader);
    flw_stats_file_remove(&stats_file);
}

/* A child writes without end, all bytes of a body equal; a successful read has equal bytes too. */
TEST(what_is_read_beside_a_writer_is_of_one_answer)
{
    struct flw_stats_file stats_file;
    struct flw_stats_file_reader reader;
    atomic_uint *stops =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stops != MAP_FAILED);
    post(&stats_file);
    assert_int_equal(flw_stats_file_open(&reader, folder, &self), FLW_STATS_FILE_OK);
    /* The stats file is not the child's, so the child maps the file itself. */
    pid_t child = fork();
    if (child == 0) {
        static unsigned char alike[FLW_STATS_FILE_BODY_BYTES];
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* must not outlive a failing test */
        int file = open(path_of(&self), O_RDWR);
        struct flw_stats_file its = {.header = mmap(NULL, FLW_STATS_FILE_BYTES,
                                                    PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)};
        for (unsigned i = 0; atomic_load(stops) == 0; i++) {
            memset(alike, (int)(i % 251), sizeof alike);
            flw_stats_file_answer(&its, i, alike, 5000 + i % 1000);
            usleep(i % 4 == 0 ? 200 : 0);
        }
        _exit(0);
    }
    unsigned whole = 0, torn = 0;
    for (int i = 0; i < 200 || (whole == 0 && i < 200000); i++) {
        size_t count = 0;
        enum flw_stats_file_state answer = flw_stats_file_read(&reader, scratch, &count);
        if (answer == FLW_STATS_FILE_TORN) {
            torn++;
            usleep(i < 200 ? 0 : 100); /* the child is stopped in the middle of a write */
            continue;
        }
        assert_int_equal(answer, FLW_STATS_FILE_OK);
        for (size_t at = 1; at < count; at++) {
            assert_int_equal(scratch[at], scratch[0]);
        }
        whole++;
    }
    atomic_store(stops, 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(whole > 0);
    fprintf(stderr, "read whole %u, refused %u\n", whole, torn);
    flw_stats_file_close(&reader);
    flw_stats_file_remove(&stats_file);
    munmap(stops, 4096);
}

/* A process may shorten the stats file at any time; that must not crash the reader. */
TEST(a_board_that_is_cut_short_is_refused)
{
    static const off_t lengths[] = {0, 20, FLW_STATS_FILE_HEADER_BYTES,
                                    FLW_STATS_FILE_HEADER_BYTES + 5};
    for (size_t i = 0; i < 2 * (sizeof lengths / sizeof *lengths); i++) {
        struct flw_stats_file stats_file;
        struct flw_stats_file_reader reader;
        size_t count = 0;
        post(&stats_file);
        flw_stats_file_answer(&stats_file, 9, "the whole of it", 15);
        assert_int_equal(flw_stats_file_open(&reader, folder, &self), FLW_STATS_FILE_OK);
        assert_int_equal(truncate(stats_file.path, lengths[i / 2]), 0);
        if (i % 2 == 1) {
            assert_int_equal(truncate(stats_file.path, FLW_STATS_FILE_BYTES), 0);
        }
        assert_int_equal(flw_stats_file_ask(&reader, 1000000),
                         lengths[i / 2] >= FLW_STATS_FILE_HEADER_BYTES ? FLW_STATS_FILE_OK
                                                                       : FLW_STATS_FILE_FOREIGN);
        assert_int_equal(flw_stats_file_read(&reader, scratch, &count), FLW_STATS_FILE_TORN);
        flw_stats_file_close(&reader);
        flw_stats_file_remove(&stats_file);
    }
}

/* ---- heads and files */

TEST(another_version_and_a_damaged_head_are_told_apart)
{
    struct flw_stats_file stats_file;
    struct flw_stats_file_reader reader;
    uint32_t version = FLW_STATS_FILE_VERSION + 6;
    post(&stats_file);
    poke(stats_file.path, offsetof(struct flw_stats_file_header, version), &version,
         sizeof version);
    assert_int_equal(flw_stats_file_open(&reader, folder, &self), FLW_STATS_FILE_VERSIONS);
    assert_int_equal(reader.version, FLW_STATS_FILE_VERSION + 6);
    version = FLW_STATS_FILE_VERSION;
    poke(stats_file.path, offsetof(struct flw_stats_file_header, version), &version,
         sizeof version);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_OK);
    unsigned char another = (unsigned char)~getpid();
    poke(stats_file.path, offsetof(struct flw_stats_file_header, process), &another, 1);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_FOREIGN);
    poke(stats_file.path, 0, "NOTABORD", 8);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_FOREIGN);
    assert_int_equal(truncate(stats_file.path, 100), 0);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_FOREIGN);
    flw_stats_file_remove(&stats_file);
}

TEST(a_file_that_others_could_have_made_is_not_read)
{
    struct flw_stats_file stats_file;
    char elsewhere[FLW_STATS_FILE_PATH_BYTES];
    post(&stats_file);
    assert_int_equal(chmod(stats_file.path, 0640), 0);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_NOT_OURS);
    assert_int_equal(chmod(stats_file.path, 0600), 0);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    assert_int_equal(rename(stats_file.path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, stats_file.path), 0);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_NOT_OURS);
    assert_int_equal(unlink(stats_file.path), 0);
    assert_int_equal(mkfifo(stats_file.path, 0600), 0);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_NOT_OURS);
    flw_stats_file_remove(&stats_file); /* the name is another file's by now: it stays */
    struct stat status;
    assert_int_equal(lstat(path_of(&self), &status), 0);
    assert_int_equal(unlink(path_of(&self)), 0);
    struct flw_stats_file_name stranger = {.user = geteuid() + 1, .process = getpid()};
    assert_int_equal(rename(elsewhere, path_of(&stranger)), 0);
    assert_int_equal(open_state(&stranger), FLW_STATS_FILE_NOT_OURS); /* named after another user */
    assert_int_equal(unlink(path_of(&stranger)), 0);
}

TEST(names_are_read_strictly)
{
    static const char *const good[] = {"fallow.0.1", "fallow.1000.4242", "fallow.4294967295.7.7"};
    static const char *const bad[] = {"fallow",
                                      "fallow.",
                                      "fallow.1",
                                      "fallow.1.",
                                      "fallow.1.0",
                                      "fallow.01.2",
                                      "fallow.1.02",
                                      "fallow.1.2.0",
                                      "fallow.1.2.8",
                                      "fallow.1.2.1.1",
                                      "fallow.1.2~",
                                      "fallow.-1.2",
                                      "fallow.1.+2",
                                      "fallow. 1.2",
                                      "fallow.1.2 ",
                                      "Fallow.1.2",
                                      "xfallow.1.2",
                                      "fallow.1.2147483648",
                                      "fallow.4294967296.1",
                                      "fallow.1.2.x",
                                      "fallow.1.99999999999999999999"};
    struct flw_stats_file_name name;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char path[FLW_STATS_FILE_PATH_BYTES];
        assert_true(flw_stats_file_parse(good[i], &name));
        assert_true(flw_stats_file_path(path, "", &name));
        assert_string_equal(path + 1, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (flw_stats_file_parse(bad[i], &name)) {
            fail_msg("'%s' was taken for a board", bad[i]);
        }
    }
}

/* ---- life */

/* Return the lowest free descriptor, which a leak would increase. */
static int next_descriptor(void)
{
    int file = dup(STDERR_FILENO);
    close(file);
    return file;
}

TEST(copies_of_the_library_have_a_board_each)
{
    int before = next_descriptor();
    struct flw_stats_file stats_files[FLW_STATS_FILE_COPIES], more;
    struct flw_stats_file_name name = self;
    char message[FLW_STATS_FILE_MESSAGE_BYTES] = "";
    for (uint32_t i = 0; i < FLW_STATS_FILE_COPIES; i++) {
        post(&stats_files[i]);
        name.copy = i;
        assert_string_equal(stats_files[i].path, path_of(&name));
        assert_int_equal(open_state(&name), FLW_STATS_FILE_OK);
    }
    assert_false(flw_stats_file_post(&more, folder, message));
    assert_int_equal(next_descriptor(), before); /* a stats file keeps none */
    assert_non_null(strstr(message, "File exists"));
    assert_null(strchr(message, '\n'));
    for (uint32_t i = 0; i < FLW_STATS_FILE_COPIES; i++) {
        flw_stats_file_remove(&stats_files[i]);
    }
    assert_int_equal(rmdir(folder), 0); /* nothing was left, no draft either */
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* Run `act` in a child that has published a stats file, and wait for it. */
static void in_a_child(void (*act)(struct flw_stats_file *stats_file),
                       struct flw_stats_file_name *out_name)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct flw_stats_file stats_file;
        char message[FLW_STATS_FILE_MESSAGE_BYTES];
        if (!flw_stats_file_post(&stats_file, folder, message)) {
            _exit(9);
        }
        act(&stats_file);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    *out_name = (struct flw_stats_file_name){.user = geteuid(), .process = child};
}

static void leave_it(struct flw_stats_file *stats_file)
{
    (void)stats_file;
}

static unsigned seen_count;

static void count_name(void *context, const struct flw_stats_file_name *name)
{
    (void)context;
    (void)name;
    seen_count++;
}

TEST(a_board_whose_process_is_gone_is_stale_and_swept)
{
    struct flw_stats_file_name name;
    struct flw_stats_file stats_file;
    in_a_child(leave_it, &name);
    assert_int_equal(open_state(&name), FLW_STATS_FILE_STALE);
    seen_count = 0;
    assert_true(flw_stats_file_sweep(folder, count_name, NULL));
    assert_int_equal(seen_count, 0);
    assert_int_equal(open_state(&name), FLW_STATS_FILE_ABSENT);
    in_a_child(leave_it, &name);
    post(&stats_file); /* the next one to publish cleans up too */
    assert_int_equal(open_state(&name), FLW_STATS_FILE_ABSENT);
    assert_true(flw_stats_file_sweep(folder, count_name, NULL));
    assert_int_equal(seen_count, 1);
    assert_int_equal(open_state(&self), FLW_STATS_FILE_OK);
    flw_stats_file_remove(&stats_file);
}

/* Close all descriptors, including others', and fork a child that outlives the process. The child
 * reports over `report`: 's' if the stats file is stale after the process. */
static void outlive(int report)
{
    struct flw_stats_file stats_file;
    char message[FLW_STATS_FILE_MESSAGE_BYTES], byte = '?';
    int ends[2];
    struct flw_stats_file_name name = {.user = geteuid(), .process = getpid()};
    if (!flw_stats_file_post(&stats_file, folder, message) || pipe(ends) != 0) {
        _exit(1);
    }
    for (int file = 3; file < 64; file++) {
        if (file != report && file != ends[0] && file != ends[1]) {
            close(file);
        }
    }
    if (open_state(&name) != FLW_STATS_FILE_OK) {
        _exit(2); /* independent of any descriptor */
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        (void)!read(ends[0], &byte, 1); /* until the parent is gone */
        for (int i = 0; i < 20000 && open_state(&name) == FLW_STATS_FILE_OK; i++) {
            usleep(1000); /* a process closes pipes before or after it releases locks */
        }
        byte = open_state(&name) == FLW_STATS_FILE_STALE ? 's' : 'w';
        (void)!write(report, &byte, 1);
        _exit(0);
    }
    _exit(child > 0 ? 0 : 3);
}

TEST(closed_descriptors_and_forks_change_nothing)
{
    int ends[2], status = 0;
    char byte = '?';
    if (FLW_IS_EMULATED) {
        skip(); /* MADV_DONTFORK does nothing there: the grandchild keeps the mapping, and so the lock */
    }
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        outlive(ends[1]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 's');
    close(ends[0]);
    assert_true(flw_stats_file_sweep(folder, NULL, NULL));
}

TEST(foreign_files_of_such_a_name_stay)
{
    struct flw_stats_file_name name = {.user = geteuid(), .process = 77};
    char draft[FLW_STATS_FILE_PATH_BYTES + 1];
    struct stat status;
    int file = open(path_of(&name), O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, "somebody's own text", 19), 19);
    close(file);
    snprintf(draft, sizeof draft, "%s~", path_of(&name)); /* of a process that was killed while
                                                              creating it */
    file = open(draft, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    close(file);
    seen_count = 0;
    assert_true(flw_stats_file_sweep(folder, count_name, NULL));
    assert_int_equal(seen_count, 1);
    assert_int_equal(stat(path_of(&name), &status), 0);
    assert_int_equal(stat(draft, &status), -1);
    assert_int_equal(unlink(path_of(&name)), 0);
}

TEST(no_room_and_no_folder_are_told_in_one_line)
{
    struct flw_stats_file stats_file;
    struct rlimit before, small = {.rlim_cur = 8192, .rlim_max = RLIM_INFINITY};
    char message[FLW_STATS_FILE_MESSAGE_BYTES] = "";
    assert_false(flw_stats_file_post(&stats_file, "/nonexistent/folder", message));
    assert_non_null(strstr(message, "/nonexistent/folder"));
    assert_non_null(strstr(message, "No such file"));
    assert_null(strchr(message, '\n'));
    assert_null(stats_file.header);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool is_posted = flw_stats_file_post(&stats_file, folder, message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(is_posted);
    assert_non_null(strstr(message, "File too large"));
    assert_int_equal(rmdir(folder), 0); /* nothing was left */
    assert_int_equal(mkdir(folder, 0700), 0);
}

FLW_TEST_MAIN(make_folder, remove_folder)
