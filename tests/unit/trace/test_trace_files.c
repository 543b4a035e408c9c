/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of files: plain and packed, across window edges, broken, absent, and written.
 */
#include "test_trace_bed.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test_pickle_writer.h"
#include "test_trace_random.h"
#include "trace/formats/ftrace.h"
#include "trace/io/codec.h"
#include "trace/io/output.h"

#define EVENTS 3000

static const struct {
    enum flw_codec_kind kind;
    bool is_built;
    const char *ending, *library, *magic;
    size_t magic_bytes;
} kinds[] = {{FLW_CODEC_XZ, FLW_HAS_LZMA, ".xz", "liblzma",
              "\xFD"
              "7zXZ\0",
              6},
             {FLW_CODEC_GZIP, FLW_HAS_ZLIB, ".gz", "zlib", "\x1F\x8B", 2},
             {FLW_CODEC_ZSTD, FLW_HAS_ZSTD, ".zst", "libzstd", "\x28\xB5\x2F\xFD", 4},
             {FLW_CODEC_PLAIN, true, "", NULL, "", 0}};
#define PACKED 3 /* the number of packed kinds */

struct bytes {
    char *at;
    size_t count;
};

static char folder[] = "/tmp/fallow_files_XXXXXX";

static int make_folder(void **state)
{
    return mkdtemp(folder) == NULL ? -1 : chdir(folder);
}

static int remove_folder(void **state)
{
    DIR *directory = opendir(".");
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        unlink(entry->d_name);
    }
    closedir(directory);
    return rmdir("sub") == 0 && chdir("/") == 0 ? rmdir(folder) : -1;
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *directory = opendir(".");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static void write_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static struct bytes pack(enum flw_codec_kind kind, const void *bytes, size_t count)
{
    struct bytes packed = {NULL, 0};
    const char *problem;
    FILE *to = open_memstream(&packed.at, &packed.count);
    FILE *file = flw_packer_open(to, kind, &problem);
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_true(fclose(file) == 0 && fclose(to) == 0);
    return packed;
}

/* A trace of many sizes, no two of which look alike. */
static struct bytes make_text(void)
{
    struct bytes text = {NULL, 0};
    FILE *file = open_memstream(&text.at, &text.count);
    assert_non_null(file);
    fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields times\n", file);
    for (unsigned i = 0; i < EVENTS; i++) {
        fprintf(file, "A %u %u %u 0\n", i, i, i * 2654435761u);
    }
    assert_int_equal(fclose(file), 0);
    return text;
}

static void expect_file_refused(const char *path, const char *wanted)
{
    struct flw_trace *trace;
    assert_false(flw_trace_read(path, -1, &trace, message));
    assert_null(trace);
    flw_test_expect_in(message, wanted);
    assert_int_equal(strncmp(message, path, strlen(path)), 0);
    assert_null(strchr(message, '\n'));
}

/* ---- packed ---- */

/* In two archives, one after the other; and as a trace's writer packs, over a file that is there, too. */
TEST(every_kind_unpacks_to_what_was_packed)
{
    struct bytes text = make_text();
    for (size_t i = 0; i < PACKED; i++) {
        if (!kinds[i].is_built) {
            continue;
        }
        struct bytes first = pack(kinds[i].kind, text.at, 9999);
        struct bytes second = pack(kinds[i].kind, text.at + 9999, text.count - 9999);
        first.at = realloc(first.at, first.count + second.count);
        memcpy(first.at + first.count, second.at, second.count);
        struct flw_trace *trace = read_good(first.at, first.count + second.count), *again;
        for (int over = 0; over < 2; over++) {
            struct stat status;
            char path[16];
            snprintf(path, sizeof path, "trace%s", kinds[i].ending);
            assert_true(flw_trace_write(trace, "text", path, message));
            assert_int_equal(stat(path, &status), 0);
            assert_true((size_t)status.st_size < text.count * 3 / 4);
            assert_true(flw_trace_read(path, -1, &again, message));
            expect_text(again, text.at);
        }
        assert_int_equal(flw_codec_tell((unsigned char *)first.at, first.count), kinds[i].kind);
        expect_text(trace, text.at);
        free(first.at);
        free(second.at);
    }
    free(text.at);
}

TEST(a_broken_archive_is_refused)
{
    struct bytes text = make_text();
    for (size_t i = 0; i < PACKED; i++) {
        if (!kinds[i].is_built) {
            continue;
        }
        struct bytes whole = pack(kinds[i].kind, text.at, text.count);
        for (size_t cut = 6; cut < whole.count;
             cut += cut < 99 || cut + 99 > whole.count ? 1 : 499) {
            expect_refused(whole.at, cut, "truncated");
        }
        for (size_t at = 64; at < whole.count; at += 997) {
            whole.at[at] ^= 0x10;
            assert_null(read_bytes(whole.at, whole.count));
            whole.at[at] ^= 0x10;
        }
        whole.at[whole.count - 1] ^= 1; /* all bytes before this one are intact */
        expect_refused(whole.at, whole.count, kinds[i].ending);
        whole.at[whole.count - 1] ^= 1;
        whole.at = realloc(whole.at, whole.count + 8);
        memset(whole.at + whole.count, 'x', 8);
        expect_refused(whole.at, whole.count + 8, kinds[i].ending);
        free(whole.at);
    }
    free(text.at);
}

TEST(a_build_without_the_library_says_which)
{
    for (size_t i = 0; i < PACKED; i++) {
        char head[16] = {0}, path[16];
        struct flw_output output;
        memcpy(head, kinds[i].magic, kinds[i].magic_bytes);
        expect_refused(head, sizeof(head), kinds[i].ending);
        if (!kinds[i].is_built) {
            flw_test_expect_in(message, kinds[i].library);
            snprintf(path, sizeof path, "trace%s", kinds[i].ending);
            assert_false(flw_output_begin(&output, path, message));
            flw_test_expect_in(message, "out of its name");
        }
    }
}

/* 96 MB of comments, in twelve archives. */
TEST(an_archive_that_unpacks_to_far_too_much_is_refused)
{
    static const char head[] = "#fallow-trace 1\ndevice 0\nfields none\n";
    size_t count = 8u << 20;
    char *text = malloc(count);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) {
        text[i] = "# \n"[i % 64 == 63 ? 2 : i % 64 == 1];
    }
    for (size_t i = 0; i < PACKED; i++) {
        if (!kinds[i].is_built ||
            kinds[i].kind == FLW_CODEC_GZIP) { /* which packs by at most 1032 */
            continue;
        }
        struct bytes whole = pack(kinds[i].kind, head, strlen(head));
        struct bytes part = pack(kinds[i].kind, text, count);
        whole.at = realloc(whole.at, whole.count + 12 * part.count);
        for (int copies = 0; copies < 12; copies++) {
            memcpy(whole.at + whole.count, part.at, part.count);
            whole.count += part.count;
        }
        expect_refused(whole.at, whole.count, "unpacks to more than 1000 times its size");
        free(whole.at);
        free(part.at);
    }
    free(text);
}

/* A pickle of several windows with items across each boundary. */
TEST(a_long_file_is_read_the_same_plain_and_packed)
{
    char *snapshot = NULL;
    size_t bytes;
    FILE *file = open_memstream(&snapshot, &bytes);
    for (unsigned i = 0; i < 20000; i++) {
        fprintf(file, "alloc %uM %u name \"a string that is no word, %u\"\n", i, i, i / 3);
    }
    assert_int_equal(fclose(file), 0);
    struct writer w = write_snapshot(4, snapshot);
    free(snapshot);
    assert_true(w.count > (1u << 20));
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct flw_trace *trace;
        if (!kinds[i].is_built) {
            continue;
        }
        struct bytes packed = {(char *)w.bytes, w.count};
        packed = i < PACKED ? pack(kinds[i].kind, w.bytes, w.count) : packed;
        write_bytes("long", packed.at, packed.count);
        free(packed.at);
        assert_true(flw_trace_read("long", -1, &trace, message));
        assert_string_equal(trace->source, "long");
        assert_int_equal(trace->event_count, 20000);
        for (uint64_t e = 0; e < 20000; e++) {
            assert_true(trace->events[e].address == e << 20 && trace->events[e].size_bytes == e);
        }
        flw_trace_destroy(trace);
    }
}

TEST(a_cut_archive_of_a_trace_file_is_read_up_to_there)
{
    struct flw_trace *whole = random_trace(11, 60000), *trace;
    size_t count;
    char *bytes = write_file(whole, "ftrace", &count);
    if (!FLW_HAS_LZMA) {
        skip();
    }
    struct bytes packed = pack(FLW_CODEC_XZ, bytes, count);
    write_bytes("cut.ftrace.xz", packed.at, packed.count * 3 / 4);
    write_bytes("stub.ftrace.xz", packed.at, 30);
    packed.at[packed.count * 3 / 4] ^= 0x10;
    write_bytes("bad.ftrace.xz", packed.at, packed.count);
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        assert_true(
            flw_trace_read(is_cut ? "cut.ftrace.xz" : "bad.ftrace.xz", -1, &trace, message));
        assert_string_equal(message, "");
        flw_test_expect_in(trace->truncation, is_cut ? ": the .xz data ends early: it is truncated"
                                                     : ": the .xz data is corrupt");
        flw_test_expect_in(trace->truncation, "packed byte ");
        assert_in_range(trace->event_count, whole->event_count / 4, whole->event_count - 1);
        assert_true(flw_trace_is_valid(trace));
        flw_trace_destroy(trace);
    }
    expect_file_refused("stub.ftrace.xz", "stub.ftrace.xz: ");
    flw_trace_destroy(whole);
    free(packed.at);
    free(bytes);
}

/* An archive of stored bytes with a wrong checksum: the unpacked bytes are read before the error is found. */
TEST(a_damaged_archive_is_blamed_for_what_made_no_sense)
{
    static const char text[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA x\n";
    uint8_t bytes[128] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1};
    size_t count = sizeof(text) - 1;
    bytes[11] = (uint8_t)count;
    bytes[13] = (uint8_t)~count;
    bytes[14] = 0xFF;
    memcpy(bytes + 15, text, count);
    expect_refused(text, count, "byte 46: line 5: ");
    if (FLW_HAS_ZLIB) {
        expect_refused(bytes, 15 + count + 8, ": the .gz data is corrupt");
    }
}

/* ---- refused ---- */

TEST(what_cannot_be_read_is_an_error_that_names_it)
{
    char name[260];
    struct flw_trace *trace;
    assert_int_equal(mkdir("sub", 0700), 0);
    write_bytes("empty", "", 0);
    write_bytes("text", "hello", 5);
    expect_file_refused("sub", "is a directory");
    expect_file_refused("empty", "the file is empty");
    expect_file_refused("text", "neither");
    expect_file_refused("absent", "No such file");
    if (geteuid() != 0) {
        assert_int_equal(chmod("text", 0), 0);
        expect_file_refused("text", "Permission denied");
    }
    memset(name, 'x', sizeof(name)); /* an odd name stays on one line */
    strcpy(name + 240, "\nlast");
    assert_false(flw_trace_read(name, -1, &trace, message));
    assert_null(strchr(message, '\n'));
    flw_test_expect_in(message, "xxx?last: cannot open: No such file");
}

/* ---- written ---- */

static const char small[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 0 0 8 0\n";

static void expect_unwritable(const char *path, const char *wanted)
{
    struct flw_trace *trace = read_text(small);
    assert_false(flw_trace_write(trace, "text", path, message));
    flw_test_expect_in(message, wanted);
    assert_false(flw_trace_write(trace, "ftrace", path, message));
    flw_test_expect_in(message, wanted);
    assert_null(strchr(message, '\n'));
    flw_trace_destroy(trace);
}

static void expect_readers(const char *path, uid_t owner, gid_t group, mode_t mode)
{
    struct stat status;
    struct flw_trace *trace = read_text(small);
    assert_true(flw_trace_write(trace, "text", path, message));
    flw_trace_destroy(trace);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, owner);
    assert_int_equal(status.st_gid, group);
    assert_int_equal(status.st_mode & 0777, mode);
}

TEST(a_written_file_is_complete_and_replaces_the_old_one)
{
    struct flw_trace *trace;
    struct stat status;
    write_bytes("out", "old", 3);
    assert_int_equal(chmod("out", 0640), 0);
    assert_int_equal(symlink("out", "link"), 0);
    size_t before = count_files();
    expect_readers("link", geteuid(), getegid(), 0640);
    assert_int_equal(count_files(), before);
    assert_int_equal(lstat("link", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_true(flw_trace_read("out", -1, &trace, message));
    expect_text(trace, small);
}

/* Only root may change a file's owner. For other users the new file has their own group, without access for that
 * group. */
TEST(a_replaced_file_keeps_its_owner_and_its_group)
{
    write_bytes("theirs", "old", 3);
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

/* /dev/full rejects all bytes; a limit on file sizes simulates a full disk. */
TEST(where_nothing_can_be_written_there_is_an_error_and_no_file)
{
    size_t before = count_files();
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit tight = {8, old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    expect_unwritable("/dev/full", "/dev/full: cannot write: No space left");
    expect_unwritable("absent/out", "absent/out: cannot create a file there: No such file");
    expect_unwritable(".", ".: cannot write: Is a directory");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    expect_unwritable("new", "new: cannot write: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(count_files(), before);
    /* Packed bytes that do not fit fail at the end, when the archive is closed, or long before. */
    for (size_t i = 0; i < 2 * COUNT_OF(kinds); i++) {
        if (!kinds[i / 2].is_built) {
            continue;
        }
        struct flw_output output;
        uint64_t random = 9;
        char path[16];
        snprintf(path, sizeof path, "full%s", kinds[i / 2].ending);
        assert_int_equal(symlink("/dev/full", path), 0);
        assert_true(flw_output_begin(&output, path, message));
        for (size_t j = 0; j < (i % 2 == 0 ? 1 : 1u << 20); j++) {
            putc((int)(flw_test_random(&random) & 0xFF), output.file);
        }
        assert_false(flw_output_commit(&output, message));
        flw_test_expect_in(message, "No space left");
        unlink(path);
    }
}

TEST(nothing_written_is_empty_and_what_is_abandoned_nothing)
{
    static const struct {
        const char *name;
        enum flw_codec_kind kind;
    } endings[] = {
        {"a/b.ftext.xz", FLW_CODEC_XZ},  {"b.json.gz", FLW_CODEC_GZIP},
        {"b.zst", FLW_CODEC_ZSTD},       {"b.ftext", FLW_CODEC_PLAIN},
        {"b.xz.ftext", FLW_CODEC_PLAIN}, {".gz", FLW_CODEC_PLAIN}, /* a name, not an ending */
        {"-", FLW_CODEC_PLAIN}};
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        assert_int_equal(flw_packer_tell(endings[i].name), endings[i].kind);
    }
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (!kinds[i].is_built) {
            continue;
        }
        struct flw_output output;
        unsigned char bytes[256];
        char path[16];
        snprintf(path, sizeof path, "never%s", kinds[i].ending);
        size_t before = count_files();
        assert_true(flw_output_begin(&output, path, message));
        fputs("half of it", output.file);
        flw_output_abandon(&output);
        assert_int_equal(count_files(), before);
        assert_true(flw_output_begin(&output, path, message) &&
                    flw_output_commit(&output, message));
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(flw_codec_tell(bytes, fread(bytes, 1, sizeof bytes, file)), kinds[i].kind);
        fclose(file);
    }
}

/* Writes until killed; reports to `report` how many events are safe. */
static void write_without_end(const char *path, int report)
{
    struct flw_ftrace_settings settings = {.has_times = true, .step_ns = 1};
    FILE *file = fopen(path, "wx");
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = file != NULL ? flw_ftrace_writer_create(&sink, &settings) : NULL;
    bool goes_on = w != NULL && flw_ftrace_writer_add_stream(w, 0);
    for (uint32_t i = 0; goes_on; i++) {
        struct flw_record event = {.op = i % 2 ? FLW_TRACE_FREE : FLW_TRACE_ALLOC,
                                   .time = i,
                                   .size_bytes = 64,
                                   .block = i / 2,
                                   .tag = 1,
                                   FLW_RECORD_UNSET};
        uint64_t safe_count = i + 1;
        goes_on = flw_ftrace_writer_add(w, event) &&
                  (i % 1000 != 0 ||
                   (flw_ftrace_writer_flush(w) &&
                    write(report, &safe_count, sizeof(safe_count)) == (ssize_t)sizeof(safe_count)));
    }
    _exit(1);
}

TEST(a_killed_writer_loses_only_what_it_had_not_flushed)
{
    int pipe_ends[2];
    uint64_t safe_count = 0;
    struct flw_trace *trace;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipe_ends[0]);
        write_without_end("killed.ftrace", pipe_ends[1]);
    }
    close(pipe_ends[1]);
    while (safe_count < 100000 && read(pipe_ends[0], &safe_count, sizeof(safe_count)) > 0) {
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(pipe_ends[0], &safe_count, sizeof(safe_count)) > 0) {
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(pipe_ends[0]);
    assert_true(WIFSIGNALED(status) && safe_count >= 100000);
    assert_true(flw_trace_read("killed.ftrace", -1, &trace, message));
    assert_true(trace->event_count >= safe_count);
    flw_test_expect_in(trace->truncation, "the file ends");
    flw_trace_destroy(trace);
}

FLW_TEST_MAIN(make_folder, remove_folder)
