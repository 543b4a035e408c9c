/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of packed traces of every kind that the build can unpack, and of the message where
 * it cannot. Does not: read files (test_trace_input does).
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/io/codec.h"
#include "trace/trace/trace.h"

#if FLW_HAS_LZMA
#include <lzma.h>
#endif
#if FLW_HAS_ZLIB
#include <zlib.h>
#endif
#if FLW_HAS_ZSTD
#include <zstd.h>
#endif

#define ROOM        (1u << 20)
#define EVENT_COUNT 3000

typedef size_t (*packer)(const void *bytes, size_t count, unsigned char *out, size_t room);

static char message[FLW_TRACE_MESSAGE_BYTES];

#if FLW_HAS_LZMA
static size_t pack_xz(const void *bytes, size_t count, unsigned char *out, size_t room)
{
    size_t packed = 0;
    lzma_ret code =
        lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, bytes, count, out, &packed, room);
    assert_int_equal(code, LZMA_OK);
    return packed;
}
#endif

#if FLW_HAS_ZLIB
static size_t pack_gzip(const void *bytes, size_t count, unsigned char *out, size_t room)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (unsigned char *)(uintptr_t)bytes;
    stream.avail_in = (uInt)count;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t packed = stream.total_out;
    deflateEnd(&stream);
    return packed;
}
#endif

#if FLW_HAS_ZSTD
static size_t pack_zstd(const void *bytes, size_t count, unsigned char *out, size_t room)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t packed = ZSTD_compress2(context, out, room, bytes, count);
    assert_false(ZSTD_isError(packed));
    ZSTD_freeCCtx(context);
    return packed;
}
#endif

static const struct {
    packer pack; /* NULL: the build lacks the library */
    const char *suffix, *library, *magic;
    size_t magic_bytes;
} kinds[] = {
#if FLW_HAS_LZMA
    {pack_xz, ".xz", "liblzma",
     "\xFD"
     "7zXZ\0",
     6},
#else
    {NULL, ".xz", "liblzma",
     "\xFD"
     "7zXZ\0",
     6},
#endif
#if FLW_HAS_ZLIB
    {pack_gzip, ".gz", "zlib", "\x1F\x8B", 2},
#else
    {NULL, ".gz", "zlib", "\x1F\x8B", 2},
#endif
#if FLW_HAS_ZSTD
    {pack_zstd, ".zst", "libzstd", "\x28\xB5\x2F\xFD", 4},
#else
    {NULL, ".zst", "libzstd", "\x28\xB5\x2F\xFD", 4},
#endif
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static char *make_text(size_t *out_count)
{
    char *text = malloc(ROOM);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "#fallow-trace 1\ndevice 0\nstream 0\nfields times\n");
    for (unsigned i = 0; i < EVENT_COUNT; i++) {
        at += (size_t)sprintf(text + at, "A %u %u %u 0\n", i, i, i * 2654435761u);
    }
    *out_count = at;
    return text;
}

static struct flw_trace *read_bytes(const void *bytes, size_t count)
{
    struct flw_trace *trace;
    unsigned char *exact = malloc(count);
    assert_non_null(exact);
    memcpy(exact, bytes, count); /* a sanitizer sees a read past the end */
    bool is_read = flw_trace_read_bytes(exact, count, "name", -1, &trace, message);
    free(exact);
    assert_int_equal(is_read, trace != NULL);
    if (!is_read) {
        assert_int_equal(strncmp(message, "name: ", 6), 0);
        assert_null(strchr(message, '\n'));
    }
    return trace;
}

static void expect_refused(const void *bytes, size_t count, const char *wanted)
{
    assert_null(read_bytes(bytes, count));
    if (strstr(message, wanted) == NULL) {
        print_error("\"%s\" lacks \"%s\"\n", message, wanted);
    }
    assert_non_null(strstr(message, wanted));
}

static void every_kind_unpacks_to_what_was_packed(void **state)
{
    (void)state;
    size_t count;
    char *text = make_text(&count);
    unsigned char *packed = malloc(ROOM);
    assert_non_null(packed);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (kinds[i].pack == NULL) {
            continue;
        }
        /* in two archives, one after the other */
        size_t first = kinds[i].pack(text, 9999, packed, ROOM);
        size_t both =
            first + kinds[i].pack(text + 9999, count - 9999, packed + first, ROOM - first);
        struct flw_trace *trace = read_bytes(packed, both);
        assert_non_null(trace);
        assert_int_equal(trace->event_count, EVENT_COUNT);
        for (unsigned e = 0; e < EVENT_COUNT; e++) {
            assert_int_equal(trace->events[e].size_bytes, e * 2654435761u);
        }
        flw_trace_destroy(trace);
    }
    free(packed);
    free(text);
}

static void an_archive_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t count;
    char *text = make_text(&count);
    unsigned char *packed = malloc(ROOM);
    assert_non_null(packed);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        size_t whole = kinds[i].pack == NULL ? 0 : kinds[i].pack(text, count, packed, ROOM);
        for (size_t cut = 6; cut < whole; cut += cut < 99 || cut + 99 > whole ? 1 : 499) {
            expect_refused(packed, cut, "truncated");
        }
    }
    free(packed);
    free(text);
}

static void a_changed_bit_is_found(void **state)
{
    (void)state;
    size_t count;
    char *text = make_text(&count);
    unsigned char *packed = malloc(ROOM);
    assert_non_null(packed);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        size_t whole = kinds[i].pack == NULL ? 0 : kinds[i].pack(text, count, packed, ROOM);
        for (size_t at = 64; at < whole; at += 997) {
            packed[at] ^= 0x10;
            assert_null(read_bytes(packed, whole));
            packed[at] ^= 0x10;
        }
        if (whole > 0) {
            memset(packed + whole, 'x', 8);
            expect_refused(packed, whole + 8, kinds[i].suffix);
        }
    }
    free(packed);
    free(text);
}

static void a_build_without_the_library_says_which(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        unsigned char head[16] = {0};
        memcpy(head, kinds[i].magic, kinds[i].magic_bytes);
        expect_refused(head, sizeof(head), kinds[i].suffix);
        if (kinds[i].pack == NULL) {
            assert_non_null(strstr(message, kinds[i].library));
        }
    }
}

/* One comment of 100 MB. */
static void an_archive_that_unpacks_to_far_too_much_is_refused(void **state)
{
    (void)state;
    size_t count = 100u << 20;
    char *text = malloc(count);
    unsigned char *packed = malloc(ROOM);
    assert_true(text != NULL && packed != NULL);
    memset(text, '#', count);
    for (size_t i = 0; i < count; i += 64) {
        text[i + 1] = ' ';
        text[i + 63] = '\n';
    }
    memcpy(text, "#fallow-trace 1\ndevice 0\nfields none\n# twenty-four letters here\n", 64);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (kinds[i].pack != NULL) {
            size_t whole = kinds[i].pack(text, count, packed, ROOM);
            if (whole < 100000) { /* .gz cannot pack by more than 1032 */
                expect_refused(packed, whole, "unpacks to more than 1000 times its size");
            }
        }
    }
    free(packed);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_unpacks_to_what_was_packed),
        cmocka_unit_test(an_archive_cut_anywhere_is_refused),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(a_build_without_the_library_says_which),
        cmocka_unit_test(an_archive_that_unpacks_to_far_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
