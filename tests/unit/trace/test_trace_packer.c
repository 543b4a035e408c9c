/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of packed output: what is written under a name that ends in .xz, .gz or .zst.
 */
#include "support/test.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/io/codec.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#define TEXT_BYTES (1u << 20)

static char folder[] = "/tmp/fallow_packer_XXXXXX";
static char message[FLW_TRACE_MESSAGE_BYTES];

static const struct {
    const char *ending;
    enum flw_codec_kind kind;
    bool is_built;
} kinds[] = {{".xz", FLW_CODEC_XZ, FLW_HAS_LZMA},
             {".gz", FLW_CODEC_GZIP, FLW_HAS_ZLIB},
             {".zst", FLW_CODEC_ZSTD, FLW_HAS_ZSTD}};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static void name_file(char *path, size_t room, const char *name, const char *ending)
{
    snprintf(path, room, "%s/%s%s", folder, name, ending);
}

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

/* A trace of many sizes, no two of which look alike. */
static char *write_trace(size_t *out_bytes)
{
    char *text = malloc(TEXT_BYTES);
    uint64_t state = 5;
    assert_non_null(text);
    size_t at =
        (size_t)snprintf(text, TEXT_BYTES, "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n");
    for (size_t i = 0; at < TEXT_BYTES - 64; i++) {
        at += (size_t)snprintf(text + at, TEXT_BYTES - at, "A 0 %zu %llu 0\n", i,
                               (unsigned long long)(flw_test_random(&state) >> 24));
    }
    *out_bytes = at;
    return text;
}

static void endings_tell_the_kind(void **state)
{
    (void)state;
    assert_int_equal(flw_packer_tell("a/b.ftext.xz"), FLW_CODEC_XZ);
    assert_int_equal(flw_packer_tell("b.json.gz"), FLW_CODEC_GZIP);
    assert_int_equal(flw_packer_tell("b.zst"), FLW_CODEC_ZSTD);
    assert_int_equal(flw_packer_tell("b.ftext"), FLW_CODEC_PLAIN);
    assert_int_equal(flw_packer_tell("b.xz.ftext"), FLW_CODEC_PLAIN);
    assert_int_equal(flw_packer_tell(".gz"), FLW_CODEC_PLAIN); /* a name, not an ending */
    assert_int_equal(flw_packer_tell("-"), FLW_CODEC_PLAIN);
}

static void what_is_packed_reads_back(void **state)
{
    size_t bytes;
    (void)state;
    char *text = write_trace(&bytes);
    unsigned char *packed = malloc(bytes);
    unsigned char *again = malloc(bytes);
    assert_true(packed != NULL && again != NULL);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        struct flw_trace *trace;
        char path[64];
        if (!kinds[i].is_built) {
            continue;
        }
        assert_true(flw_trace_read_bytes(text, bytes, "text", -1, &trace, message));
        name_file(path, sizeof(path), "trace", kinds[i].ending);
        assert_true(flw_trace_write_text(trace, path, message));
        size_t count = read_file(path, packed, bytes);
        assert_int_equal(flw_codec_tell(packed, count), kinds[i].kind);
        assert_true(count < bytes * 3 / 4);
        assert_true(flw_trace_write_text(trace, path, message)); /* over the one that is there */
        assert_int_equal(read_file(path, again, bytes), count);
        assert_memory_equal(packed, again, count);
        flw_trace_destroy(trace);
        assert_true(flw_trace_read(path, -1, &trace, message));
        name_file(path, sizeof(path), "plain", "");
        assert_true(flw_trace_write_text(trace, path, message));
        assert_int_equal(read_file(path, again, bytes), bytes);
        assert_memory_equal(text, again, bytes);
        flw_trace_destroy(trace);
        unlink(path);
        name_file(path, sizeof(path), "trace", kinds[i].ending);
        unlink(path);
    }
    free(text);
    free(packed);
    free(again);
}

static void an_empty_file_is_an_empty_archive(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        struct flw_output output;
        unsigned char bytes[256];
        char path[64];
        name_file(path, sizeof(path), "empty", kinds[i].ending);
        if (!kinds[i].is_built) {
            assert_false(flw_output_begin(&output, path, message));
            assert_non_null(strstr(message, "out of its name"));
            continue;
        }
        assert_true(flw_output_begin(&output, path, message));
        assert_true(flw_output_commit(&output, message));
        assert_int_equal(flw_codec_tell(bytes, read_file(path, bytes, sizeof(bytes))),
                         kinds[i].kind);
        unlink(path);
    }
}

/* The bytes that do not fit come at the end, when the archive is closed, or long before. */
static void a_full_disk_is_not_taken_for_success(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        for (size_t count = 1; count <= TEXT_BYTES; count *= TEXT_BYTES) {
            struct flw_output output;
            uint64_t random = 9;
            char path[64];
            name_file(path, sizeof(path), "full", kinds[i].ending);
            assert_int_equal(symlink("/dev/full", path), 0);
            if (kinds[i].is_built) {
                assert_true(flw_output_begin(&output, path, message));
                for (size_t j = 0; j < count; j++) {
                    putc((int)(flw_test_random(&random) & 0xFF), output.file);
                }
                assert_false(flw_output_commit(&output, message));
                assert_non_null(strstr(message, "No space left"));
            }
            unlink(path);
        }
    }
}

static void what_is_abandoned_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        struct flw_output output;
        char path[64];
        name_file(path, sizeof(path), "never", kinds[i].ending);
        if (kinds[i].is_built) {
            assert_true(flw_output_begin(&output, path, message));
            fputs("half of it", output.file);
            flw_output_abandon(&output);
        }
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

/* Also shows that nothing is left in it. */
static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings_tell_the_kind),
        cmocka_unit_test(what_is_packed_reads_back),
        cmocka_unit_test(an_empty_file_is_an_empty_archive),
        cmocka_unit_test(a_full_disk_is_not_taken_for_success),
        cmocka_unit_test(what_is_abandoned_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
