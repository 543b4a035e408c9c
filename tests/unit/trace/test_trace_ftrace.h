/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the tests of the trace file share: traces as bytes and back, files put together chunk by chunk.
 */
#ifndef FLW_TESTS_TRACE_FTRACE_H
#define FLW_TESTS_TRACE_FTRACE_H

#include "support/test.h"

#include <string.h>

#include "record/frame.h"
#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/text.h"

static char message[FLW_TRACE_MESSAGE_BYTES];

struct bytes {
    char *at;
    size_t count;
};

static inline struct bytes print_text(const struct flw_trace *trace)
{
    struct bytes text = {NULL, 0};
    FILE *file = open_memstream(&text.at, &text.count);
    assert_non_null(file);
    assert_true(flw_text_print(trace, file));
    assert_int_equal(fclose(file), 0);
    return text;
}

static inline struct bytes print_file(const struct flw_trace *trace, enum flw_record_codec codec)
{
    struct bytes bytes = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    assert_non_null(file);
    assert_true(flw_ftrace_print(trace, codec, file));
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static inline struct flw_trace *read_bytes(const void *bytes, size_t count)
{
    struct flw_trace *trace;
    bool is_read = flw_trace_read_bytes(bytes, count, "name", -1, &trace, message);
    assert_int_equal(is_read, trace != NULL);
    assert_true(is_read || strncmp(message, "name: ", 6) == 0);
    return trace;
}

static inline struct flw_trace *read_on(const void *bytes, size_t count)
{
    struct flw_input input;
    struct flw_trace *trace;
    assert_true(flw_input_open_bytes(&input, bytes, count, "name", message));
    input.reads_on = true;
    flw_ftrace_read(&input, -1, &trace);
    flw_input_close(&input);
    return trace;
}

/* Offset of the header of the chunk of that type, number `skip` among them. */
static inline size_t find_chunk(const struct bytes *bytes, uint8_t type, size_t skip)
{
    struct flw_crc32c crc;
    struct flw_frame_chunk frame;
    size_t at = FLW_FRAME_BYTES;
    flw_crc32c_init(&crc);
    while (at < bytes->count) {
        assert_true(flw_frame_get_chunk(&crc, (const unsigned char *)bytes->at + at, &frame));
        if (frame.type == type && skip-- == 0) {
            return at;
        }
        at += FLW_FRAME_BYTES + frame.payload_bytes;
    }
    fail_msg("no chunk of type %d", type);
    return 0;
}

struct piece {
    unsigned char bytes[4096];
    size_t count;
};

static inline void add_header(struct piece *piece, uint16_t major, uint16_t minor, uint64_t flags,
                              uint64_t ticks_per_second)
{
    struct flw_crc32c crc;
    flw_crc32c_init(&crc);
    struct flw_frame_file file = {.major = major,
                                  .minor = minor,
                                  .header_bytes = FLW_FRAME_BYTES + 8,
                                  .flags = flags,
                                  .ticks_per_second = ticks_per_second};
    flw_frame_put_file(&crc, &file, piece->bytes);
    memset(piece->bytes + FLW_FRAME_BYTES, 7, 8);
    piece->count = FLW_FRAME_BYTES + 8;
}

static inline void add_chunk(struct piece *piece, struct flw_frame_chunk frame, const void *payload,
                             size_t count)
{
    struct flw_crc32c crc;
    flw_crc32c_init(&crc);
    frame.payload_bytes = (uint32_t)count;
    frame.unpacked_bytes = (uint32_t)count;
    frame.payload_crc = flw_crc32c_add(&crc, 0, payload, count);
    flw_frame_put_chunk(&crc, &frame, piece->bytes + piece->count);
    memcpy(piece->bytes + piece->count + FLW_FRAME_BYTES, payload, count);
    piece->count += FLW_FRAME_BYTES + count;
}

#endif
