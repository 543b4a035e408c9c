/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: helpers for tests of trace formats: read a trace from bytes, print a trace as text, compare two texts.
 */
#ifndef FLW_TESTS_TRACE_BED_H
#define FLW_TESTS_TRACE_BED_H

#include "support/test.h"

#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/formats/text.h"
#include "trace/trace/trace.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static char message[FLW_TRACE_MESSAGE_BYTES];

/* NULL: refused. The reader gets a copy of exactly these bytes, so that a sanitizer sees a read past their end. */
static inline struct flw_trace *read_device(const void *bytes, size_t count, int device)
{
    struct flw_trace *trace;
    char *exact = malloc(count > 0 ? count : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, count);
    bool is_read = flw_trace_read_bytes(exact, count, "name", device, &trace, message);
    free(exact);
    assert_int_equal(is_read, trace != NULL);
    if (is_read) {
        assert_true(flw_trace_is_valid(trace));
        assert_string_equal(message, "");
    } else {
        assert_int_equal(strncmp(message, "name: ", 6), 0);
        assert_null(strchr(message, '\n'));
    }
    return trace;
}

static inline struct flw_trace *read_bytes(const void *bytes, size_t count)
{
    return read_device(bytes, count, -1);
}

static inline struct flw_trace *read_good(const void *bytes, size_t count)
{
    struct flw_trace *trace = read_bytes(bytes, count);
    if (trace == NULL) {
        fail_msg("%s", message);
    }
    return trace;
}

static inline struct flw_trace *read_text(const char *text)
{
    return read_good(text, strlen(text));
}

static inline void expect_refused(const void *bytes, size_t count, const char *wanted)
{
    assert_null(read_bytes(bytes, count));
    flw_test_expect_in(message, wanted);
}

/* The caller frees it. */
static inline char *print_text(const struct flw_trace *trace)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_null(flw_text_print(trace, file));
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Destroy the trace. */
static inline void expect_text(struct flw_trace *trace, const char *wanted)
{
    char *text = print_text(trace);
    assert_string_equal(text, wanted);
    free(text);
    flw_trace_destroy(trace);
}

/* A text without the header lines. */
static inline const char *records_of(const char *text)
{
    while (*text == '#' || (*text >= 'a' && *text <= 'z')) {
        text = strchr(text, '\n') + 1;
    }
    return text;
}

/* As expect_text, without the header lines. */
static inline void expect_records(struct flw_trace *trace, const char *wanted)
{
    char *text = print_text(trace);
    assert_string_equal(records_of(text), wanted);
    free(text);
    flw_trace_destroy(trace);
}

/* Return the file of a format. Freed by the caller. */
static inline char *write_file(const struct flw_trace *trace, const char *format, size_t *out_count)
{
    char path[] = "/tmp/fallow_trace_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(flw_trace_write(trace, format, path, message));
    FILE *file = fopen(path, "rb"); /* another file, renamed into place */
    unlink(path);
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out_count = (size_t)ftell(file);
    char *bytes = calloc(1, *out_count + 1);
    assert_non_null(bytes);
    rewind(file);
    assert_int_equal(fread(bytes, 1, *out_count, file), *out_count);
    fclose(file);
    return bytes;
}

/* Write in a format and read the file again. */
static inline struct flw_trace *write_and_read(const struct flw_trace *trace, const char *format)
{
    size_t count;
    char *bytes = write_file(trace, format, &count);
    struct flw_trace *again = read_good(bytes, count);
    free(bytes);
    return again;
}

#endif
