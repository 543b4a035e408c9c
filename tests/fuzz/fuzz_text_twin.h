/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the rules for every trace that a reader accepts: it is valid, the text and the trace file
 * read back as the same trace, and the text prints identically. Aborts otherwise, for the fuzzer. */
#ifndef FLW_TESTS_FUZZ_TEXT_TWIN_H
#define FLW_TESTS_FUZZ_TEXT_TWIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/text.h"
#include "trace/trace/trace.h"

static inline void fuzz_require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

/* Print a trace; the caller frees the text. */
static inline char *fuzz_print(const struct flw_trace *trace, size_t *out_bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, out_bytes);
    fuzz_require(file != NULL, "no memory for a text");
    fuzz_require(flw_text_print(trace, file) == NULL, "no memory for a text");
    fuzz_require(fclose(file) == 0, "no memory for a text");
    return text;
}

/* `input`: where not NULL, the text that the trace was read from. */
static inline void fuzz_check_trace(const struct flw_trace *trace, const void *input, size_t bytes)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again;
    size_t text_bytes;
    size_t again_bytes;
    fuzz_require(flw_trace_is_valid(trace), "an accepted trace is not valid");
    char *text = fuzz_print(trace, &text_bytes);
    if (input != NULL) {
        fuzz_require(text_bytes == bytes && memcmp(text, input, bytes) == 0,
                     "an accepted text is printed differently");
    }
    bool is_read = flw_trace_read_bytes(text, text_bytes, "twin", -1, &again, message);
    fuzz_require(is_read, is_read ? "" : message);
    fuzz_require(
        again->event_count == trace->event_count && again->block_count == trace->block_count &&
            again->peak_requested_bytes == trace->peak_requested_bytes &&
            again->recorded_peak_reserved_bytes == trace->recorded_peak_reserved_bytes &&
            (trace->event_count == 0 || memcmp(again->events, trace->events,
                                               trace->event_count * sizeof(*trace->events)) == 0),
        "a trace and its text differ");
    char *again_text = fuzz_print(again, &again_bytes);
    fuzz_require(again_bytes == text_bytes && memcmp(text, again_text, text_bytes) == 0,
                 "a text read and printed differs");
    free(text);
    free(again_text);
    flw_trace_destroy(again);
}

/* Through a trace file and back: the same text. */
static inline void fuzz_check_file(const struct flw_trace *trace, enum flw_record_codec codec)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again;
    char *bytes = NULL;
    size_t count, text_bytes, again_bytes;
    FILE *file = open_memstream(&bytes, &count);
    fuzz_require(file != NULL, "no memory for a file");
    fuzz_require(flw_ftrace_print(trace, codec, file) && fclose(file) == 0,
                 "an accepted trace is not written");
    bool is_read = flw_trace_read_bytes(bytes, count, "file", -1, &again, message);
    fuzz_require(is_read, is_read ? "" : message);
    fuzz_require(again->truncation == NULL, again->truncation == NULL ? "" : again->truncation);
    char *text = fuzz_print(trace, &text_bytes);
    char *again_text = fuzz_print(again, &again_bytes);
    fuzz_require(again_bytes == text_bytes && memcmp(text, again_text, text_bytes) == 0,
                 "a trace and its file differ");
    free(bytes);
    free(text);
    free(again_text);
    flw_trace_destroy(again);
}

/* Export a trace in every form; the writer must succeed or give a reason. */
static inline void fuzz_check_exports(const struct flw_trace *trace)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    fuzz_check_file(trace, FLW_RECORD_RAW);
    fuzz_check_file(trace, FLW_RECORD_PACKED);
    fuzz_require(flw_trace_write(trace, "chrome", "/dev/null", message),
                 "not written as Chrome JSON");
    fuzz_require(flw_trace_write(trace, "rmm", "/dev/null", message), "not written as RMM's log");
    fuzz_require(flw_trace_write(trace, "pytorch", "/dev/null", message) || message[0] != '\0',
                 "not written as a snapshot, without a reason");
}

/* A refusal is one line that names the input and holds nothing. */
static inline void fuzz_check_refusal(const struct flw_trace *trace, const char *message)
{
    fuzz_require(trace == NULL, "a refused input left a trace");
    fuzz_require(strncmp(message, "fuzz: ", 6) == 0 && strlen(message) > 12,
                 "a refusal does not say which input and why");
    fuzz_require(strchr(message, '\n') == NULL, "a refusal has more than one line");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
