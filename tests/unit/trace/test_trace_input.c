/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of files: plain and packed, across window edges, broken, absent, and written.
 */
#include "support/test.h"

#include <dirent.h>
#include <lzma.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_pickle_writer.h"
#include "test_trace_random.h"
#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

static char message[FLW_TRACE_MESSAGE_BYTES];
static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/fallow_trace_XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : chdir(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *directory = opendir(".");
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        unlink(entry->d_name);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    rmdir("sub");
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *directory = opendir(".");
    struct dirent *entry;
    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

static void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* The caller frees it. */
static uint8_t *pack(const void *bytes, size_t count, size_t *out_count)
{
    size_t room = lzma_stream_buffer_bound(count);
    uint8_t *packed = malloc(room);
    assert_non_null(packed);
    *out_count = 0;
    assert_int_equal(
        lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, bytes, count, packed, out_count, room),
        LZMA_OK);
    return packed;
}

/* A pickle of several windows whose items lie across their edges everywhere. */
static struct writer long_pickle(uint64_t events)
{
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    for (uint64_t i = 0; i < events; i++) {
        put_event(&w, "alloc", i << 20, i);
        if (i % 3 == 0) {
            put_string(&w, "a string that is longer than any word of the vocabulary is");
            put_code(&w, '0'); /* and goes again */
        }
    }
    end_snapshot(&w);
    return w;
}

static void expect_refused(const char *path, const char *wanted)
{
    struct flw_trace *trace;
    assert_false(flw_trace_read(path, -1, &trace, message));
    assert_null(trace);
    if (strstr(message, wanted) == NULL) {
        print_error("\"%s\" lacks \"%s\"\n", message, wanted);
    }
    assert_non_null(strstr(message, wanted));
    assert_int_equal(strncmp(message, path, strlen(path)), 0);
    assert_null(strchr(message, '\n'));
}

static void a_long_file_is_read_the_same_plain_and_packed(void **state)
{
    (void)state;
    struct writer w = long_pickle(20000);
    size_t packed_count;
    uint8_t *packed = pack(w.bytes, w.count, &packed_count);
    assert_true(w.count > (1u << 20));
    write_file("plain", w.bytes, w.count);
    write_file("packed", packed, packed_count);
    const char *const paths[] = {"plain", "packed"};
    for (size_t i = 0; i < 2; i++) {
        struct flw_trace *trace;
        assert_true(flw_trace_read(paths[i], -1, &trace, message));
        assert_string_equal(trace->source, paths[i]);
        assert_int_equal(trace->event_count, 20000);
        for (uint64_t e = 0; e < 20000; e++) {
            assert_true(trace->events[e].address == e << 20 && trace->events[e].size_bytes == e);
        }
        flw_trace_destroy(trace);
    }
    free(packed);
    free(w.bytes);
}

static void archives_one_after_the_other_are_one_file(void **state)
{
    (void)state;
    struct writer w = long_pickle(10);
    struct flw_trace *trace;
    uint8_t joined[4096];
    size_t first_count;
    size_t second_count;
    uint8_t *first = pack(w.bytes, 99, &first_count);
    uint8_t *second = pack(w.bytes + 99, w.count - 99, &second_count);
    assert_true(first_count + second_count <= sizeof(joined));
    memcpy(joined, first, first_count);
    memcpy(joined + first_count, second, second_count);
    write_file("joined", joined, first_count + second_count);
    assert_true(flw_trace_read("joined", -1, &trace, message));
    assert_int_equal(trace->event_count, 10);
    flw_trace_destroy(trace);
    free(first);
    free(second);
    free(w.bytes);
}

static void a_broken_archive_is_an_error_that_names_the_file(void **state)
{
    (void)state;
    struct writer w = long_pickle(3000);
    size_t count;
    uint8_t *packed = pack(w.bytes, w.count, &count);
    write_file("cut.xz", packed, count - 20);
    expect_refused("cut.xz", "the .xz data ends early: it is truncated");
    write_file("cut.xz", packed, count / 2);
    expect_refused("cut.xz", "truncated");
    write_file("cut.xz", packed, 6);
    expect_refused("cut.xz", "truncated");
    packed[count - 9] ^= 1; /* its index or footer: all data comes out right before */
    write_file("bad.xz", packed, count);
    expect_refused("bad.xz", "the .xz data is corrupt");
    packed[count - 9] ^= 1;
    packed[count / 2] ^= 0x10;
    write_file("bad.xz", packed, count);
    expect_refused("bad.xz", "bad.xz: ");
    packed[count / 2] ^= 0x10;
    free(packed);
    free(w.bytes);
}

/* 80 MB of one comment, packed into 12 kB. */
static void a_cut_archive_of_a_trace_file_is_read_up_to_there(void **state)
{
    (void)state;
    struct flw_trace *whole = random_trace(11, 60000);
    struct flw_trace *trace;
    char *bytes = NULL;
    size_t count, packed_count;
    FILE *file = open_memstream(&bytes, &count);
    assert_true(file != NULL && flw_ftrace_print(whole, FLW_RECORD_PACKED, file));
    assert_int_equal(fclose(file), 0);
    uint8_t *packed = pack(bytes, count, &packed_count);
    write_file("whole.ftrace.xz", packed, packed_count);
    write_file("cut.ftrace.xz", packed, packed_count * 3 / 4);
    write_file("stub.ftrace.xz", packed, 30);
    assert_true(flw_trace_read("whole.ftrace.xz", -1, &trace, message));
    assert_null(trace->truncation);
    assert_int_equal(trace->event_count, whole->event_count);
    flw_trace_destroy(trace);
    assert_true(flw_trace_read("cut.ftrace.xz", -1, &trace, message));
    assert_string_equal(message, "");
    assert_non_null(strstr(trace->truncation, ": the .xz data ends early: it is truncated"));
    assert_non_null(strstr(trace->truncation, "packed byte "));
    assert_in_range(trace->event_count, whole->event_count / 4, whole->event_count - 1);
    assert_true(flw_trace_is_valid(trace));
    flw_trace_destroy(trace);
    packed[packed_count * 3 / 4] ^= 0x10;
    write_file("bad.ftrace.xz", packed, packed_count);
    assert_true(flw_trace_read("bad.ftrace.xz", -1, &trace, message));
    assert_non_null(strstr(trace->truncation, ": the .xz data is corrupt"));
    assert_in_range(trace->event_count, whole->event_count / 4, whole->event_count - 1);
    flw_trace_destroy(trace);
    assert_false(flw_trace_read("stub.ftrace.xz", -1, &trace, message));
    assert_int_equal(strncmp(message, "stub.ftrace.xz: ", 16), 0);
    flw_trace_destroy(whole);
    free(packed);
    free(bytes);
}

/* An archive of stored bytes whose checksum is wrong: unpacked they are read before it is seen. */
static void a_damaged_archive_is_blamed_for_what_made_no_sense(void **state)
{
    (void)state;
    static const char text[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA x\n";
    uint8_t bytes[128] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1};
    size_t count = sizeof(text) - 1;
    bytes[11] = (uint8_t)count;
    bytes[13] = (uint8_t)~count;
    bytes[14] = 0xFF;
    memcpy(bytes + 15, text, count);
    write_file("plain.ftext", text, count);
    expect_refused("plain.ftext", "byte 46: line 5: ");
    write_file("bad.ftext.gz", bytes, 15 + count + 8);
    if (FLW_HAS_ZLIB) {
        expect_refused("bad.ftext.gz", ": the .gz data is corrupt");
    }
}

static void an_archive_that_unpacks_to_far_too_much_is_refused(void **state)
{
    (void)state;
    static const char head[] =
        "#fallow-trace 1\ndevice 0\nfields none\n# twenty-four letters here\n";
    size_t count = 80u << 20;
    size_t packed_count;
    char *text = malloc(count);
    assert_non_null(text);
    memset(text, '#', count);
    for (size_t i = 0; i < count; i += 64) {
        text[i + 1] = ' ';
        text[i + 63] = '\n';
    }
    memcpy(text, head, sizeof(head) - 1);
    uint8_t *packed = pack(text, count, &packed_count);
    free(text);
    assert_true(packed_count < 15000);
    write_file("bomb.xz", packed, packed_count);
    free(packed);
    expect_refused("bomb.xz", "unpacks to more than 1000 times its size");
}

static void what_cannot_be_read_is_an_error_that_names_it(void **state)
{
    (void)state;
    assert_int_equal(mkdir("sub", 0700), 0);
    write_file("empty", "", 0);
    write_file("text", "hello", 5);
    expect_refused("sub", "is a directory");
    expect_refused("empty", "the file is empty");
    expect_refused("text", "neither");
    expect_refused("absent", "No such file");
    assert_int_equal(rmdir("sub"), 0);
    if (geteuid() != 0) {
        assert_int_equal(chmod("text", 0), 0);
        expect_refused("text", "Permission denied");
    }
}

static void an_odd_file_name_stays_on_one_line(void **state)
{
    (void)state;
    char name[260];
    struct flw_trace *trace;
    memset(name, 'x', sizeof(name));
    strcpy(name + 240, "\nlast");
    assert_false(flw_trace_read(name, -1, &trace, message));
    assert_null(strchr(message, '\n'));
    assert_non_null(strstr(message, "xxx?last: cannot open: No such file"));
}

static struct flw_trace *small_trace(void)
{
    static const char text[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 8 0\n";
    struct flw_trace *trace;
    assert_true(flw_trace_read_bytes(text, strlen(text), "small", -1, &trace, message));
    return trace;
}

static void a_written_file_is_complete_and_replaces_the_old_one(void **state)
{
    (void)state;
    struct flw_trace *trace = small_trace();
    struct flw_trace *again;
    write_file("out", "old", 3);
    assert_int_equal(symlink("out", "link"), 0);
    size_t before = count_files();
    assert_true(flw_trace_write_text(trace, "link", message));
    assert_int_equal(count_files(), before);
    struct stat status;
    assert_int_equal(lstat("link", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_true(flw_trace_read("out", -1, &again, message));
    assert_int_equal(again->event_count, 1);
    flw_trace_destroy(again);
    flw_trace_destroy(trace);
}

static void expect_readers(const char *path, uid_t owner, gid_t group, mode_t mode)
{
    struct stat status;
    struct flw_trace *trace = small_trace();
    assert_true(flw_trace_write_text(trace, path, message));
    flw_trace_destroy(trace);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, owner);
    assert_int_equal(status.st_gid, group);
    assert_int_equal(status.st_mode & 0777, mode);
}

/* Only root may give files away. Who may not makes a file of its own group, which nothing is shown to. */
static void a_replaced_file_keeps_its_owner_and_its_group(void **state)
{
    (void)state;
    write_file("theirs", "old", 3);
    if (geteuid() != 0 || chown("theirs", 4321, 4322) != 0) {
        skip();
    }
    assert_int_equal(chmod("theirs", 0640), 0);
    expect_readers("theirs", 4321, 4322, 0640);
    assert_int_equal(chmod(".", 0777), 0);
    assert_int_equal(setegid(4324), 0);
    assert_int_equal(seteuid(4323), 0);
    expect_readers("theirs", 4323, 4324, 0600);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(chown("theirs", 4321, 4324), 0);
    assert_int_equal(chmod("theirs", 0640), 0);
    assert_int_equal(seteuid(4323), 0);
    expect_readers("theirs", 4323, 4324, 0640);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(setegid(0), 0);
}

/* /dev/full takes nothing; a limit on file sizes stands for a disk that fills up. */
static void on_a_full_disk_there_is_an_error_and_no_file(void **state)
{
    (void)state;
    struct flw_trace *trace = small_trace();
    size_t before = count_files();
    assert_false(flw_trace_write_text(trace, "/dev/full", message));
    assert_non_null(strstr(message, "/dev/full: cannot write: No space left"));
    assert_int_equal(access("/dev/full", F_OK), 0);

    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit tight = {8, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    bool is_written = flw_trace_write_text(trace, "new", message);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_false(is_written);
    assert_non_null(strstr(message, "new: cannot write: File too large"));
    assert_int_equal(count_files(), before);
    flw_trace_destroy(trace);
}

static void an_unwritable_place_is_an_error(void **state)
{
    (void)state;
    struct flw_trace *trace = small_trace();
    size_t before = count_files();
    assert_false(flw_trace_write_text(trace, "absent/out", message));
    assert_non_null(strstr(message, "absent/out: cannot create a file there: No such file"));
    assert_false(flw_trace_write_text(trace, ".", message));
    assert_non_null(strstr(message, ".: cannot write: Is a directory"));
    assert_int_equal(count_files(), before);
    flw_trace_destroy(trace);
}

static void an_abandoned_output_leaves_nothing(void **state)
{
    (void)state;
    struct flw_output output;
    size_t before = count_files();
    assert_true(flw_output_begin(&output, "never", message));
    fputs("something", output.file);
    flw_output_abandon(&output);
    assert_int_equal(count_files(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_file_is_read_the_same_plain_and_packed),
        cmocka_unit_test(archives_one_after_the_other_are_one_file),
        cmocka_unit_test(a_broken_archive_is_an_error_that_names_the_file),
        cmocka_unit_test(a_cut_archive_of_a_trace_file_is_read_up_to_there),
        cmocka_unit_test(a_damaged_archive_is_blamed_for_what_made_no_sense),
        cmocka_unit_test(an_archive_that_unpacks_to_far_too_much_is_refused),
        cmocka_unit_test(what_cannot_be_read_is_an_error_that_names_it),
        cmocka_unit_test(an_odd_file_name_stays_on_one_line),
        cmocka_unit_test(a_written_file_is_complete_and_replaces_the_old_one),
        cmocka_unit_test(a_replaced_file_keeps_its_owner_and_its_group),
        cmocka_unit_test(on_a_full_disk_there_is_an_error_and_no_file),
        cmocka_unit_test(an_unwritable_place_is_an_error),
        cmocka_unit_test(an_abandoned_output_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
