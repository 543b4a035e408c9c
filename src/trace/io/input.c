/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: opening, reading and unpacking trace files.
 * Does not: trust them. An archive may not unpack to more than FLW_INPUT_EXPANSION times its size.
 */
#include "trace/io/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/io/codec.h"
#include "trace/io/progress.h"

#define WINDOW_BYTES    (1u << 18)
#define PACKED_BYTES    (1u << 16)
#define NAME_CHARACTERS 96 /* most characters of a path in a message: the end */

void (*flw_trace_listener)(const struct flw_trace_progress *progress);

struct flw_unpacker {
    struct flw_codec *codec;
    struct flw_codec_buffers buffers;
    unsigned char *packed; /* NULL: the packed bytes are the caller's memory */
    uint64_t packed_bytes; /* passed to the codec, or soon to be */
    uint64_t unpacked_bytes;
    const char
        *problem; /* a failure after bytes that were delivered; reported when more are needed */
    bool has_ended;
};

static void append_name(char *out, size_t room, const char *name)
{
    size_t length = strlen(name);
    const char *tail = length > NAME_CHARACTERS ? name + length - NAME_CHARACTERS : name;
    snprintf(out, room, "%s%s", tail == name ? "" : "...", tail);
}

static void make_one_line(char *message)
{
    for (char *c = message; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7F) {
            *c = '?';
        }
    }
}

static void message_va(char *message, const char *name, const char *format, va_list arguments)
{
    append_name(message, FLW_TRACE_MESSAGE_BYTES, name);
    size_t used = strlen(message);
    used += (size_t)snprintf(message + used, FLW_TRACE_MESSAGE_BYTES - used, ": ");
    vsnprintf(message + used, FLW_TRACE_MESSAGE_BYTES - used, format, arguments);
    make_one_line(message);
}

void flw_input_message(char *message, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    message_va(message, name, format, arguments);
    va_end(arguments);
}

bool flw_input_fail(struct flw_input *input, uint64_t offset, const char *format, ...)
{
    if (!input->failed) {
        input->failed = true;
        char text[FLW_TRACE_MESSAGE_BYTES];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        flw_input_message(input->message, input->name, "byte %llu: %s", (unsigned long long)offset,
                          text);
    }
    return false;
}

bool flw_input_fail_short(struct flw_input *input, const char *what)
{
    uint64_t end_offset = input->begin_offset + (uint64_t)(input->end - input->begin);
    return flw_input_fail(input, end_offset, "the file ends inside %s: it is truncated", what);
}

/* Read into `out`; return the number of bytes, 0 at the end or on a failure. */
static size_t read_some(struct flw_input *input, unsigned char *out, size_t room)
{
    ssize_t got = 0;
    do {
        got = read(input->fd, out, room);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        input->failed = true;
        flw_input_message(input->message, input->name, "cannot read: %s", strerror(errno));
        return 0;
    }
    input->read_bytes += (uint64_t)got;
    flw_trace_tell(&(struct flw_trace_progress){.verb = "reading",
                                                .name = input->name,
                                                .unit = "bytes",
                                                .done = input->read_bytes,
                                                .of = input->file_bytes});
    return (size_t)got;
}

static bool unpacked_too_far(const struct flw_unpacker *unpacker)
{
    return unpacker->unpacked_bytes >
           FLW_INPUT_ALLOWANCE_BYTES + unpacker->packed_bytes * FLW_INPUT_EXPANSION;
}

/* Read more packed bytes for the codec, which has none. */
static bool feed(struct flw_input *input)
{
    struct flw_unpacker *unpacker = input->unpacker;
    size_t got = read_some(input, unpacker->packed, PACKED_BYTES);
    unpacker->buffers.in = unpacker->packed;
    unpacker->buffers.in_count = got;
    unpacker->buffers.in_is_last = got == 0;
    unpacker->packed_bytes += got;
    return !input->failed;
}

static size_t fail_unpacking(struct flw_input *input, const char *problem)
{
    const struct flw_unpacker *unpacker = input->unpacker;
    input->failed = true;
    flw_input_message(input->message, input->name, "packed byte %llu: %s",
                      (unsigned long long)(unpacker->packed_bytes - unpacker->buffers.in_count),
                      problem);
    return 0;
}

/* Read like read_some, through the unpacker. */
static size_t unpack_some(struct flw_input *input, unsigned char *out, size_t room)
{
    struct flw_unpacker *unpacker = input->unpacker;
    struct flw_codec_buffers *buffers = &unpacker->buffers;
    const char *problem = NULL;
    if (unpacker->problem != NULL) {
        return fail_unpacking(input, unpacker->problem);
    }
    buffers->out = out;
    buffers->out_room = room;
    while (buffers->out_room == room && !unpacker->has_ended) {
        if (buffers->in_count == 0 && !buffers->in_is_last && !feed(input)) {
            return 0;
        }
        enum flw_codec_step step = flw_codec_unpack(unpacker->codec, buffers, &problem);
        if (step == FLW_CODEC_FAILED) {
            unpacker->problem = problem;
            if (buffers->out_room == room) {
                return fail_unpacking(input, problem);
            }
        }
        unpacker->has_ended = step == FLW_CODEC_ENDED;
    }
    unpacker->unpacked_bytes += room - buffers->out_room;
    if (unpacked_too_far(unpacker)) {
        flw_input_fail(input, unpacker->unpacked_bytes,
                       "unpacks to more than %d times its size: refused", FLW_INPUT_EXPANSION);
        return 0;
    }
    return room - buffers->out_room;
}

/* Start unpacking. `bytes` is the whole input, or the first bytes of the file. */
static bool start_unpacking(struct flw_input *input, const unsigned char *bytes, size_t count,
                            bool from_file)
{
    const char *problem = "no memory to unpack it";
    struct flw_unpacker *unpacker = calloc(1, sizeof(*unpacker));
    input->unpacker = unpacker;
    if (unpacker == NULL) {
        goto fail;
    }
    if (from_file) {
        unpacker->packed = malloc(PACKED_BYTES);
        if (unpacker->packed == NULL) {
            goto fail;
        }
        memcpy(unpacker->packed, bytes, count);
        bytes = unpacker->packed;
    }
    unpacker->codec = flw_codec_create(flw_codec_tell(bytes, count), &problem);
    if (unpacker->codec == NULL) {
        goto fail;
    }
    unpacker->buffers.in = bytes;
    unpacker->buffers.in_count = count;
    unpacker->buffers.in_is_last = !from_file;
    unpacker->packed_bytes = count;
    input->ended = false;
    input->begin = input->buffer;
    input->at = input->buffer;
    input->end = input->buffer;
    return true;

fail:
    flw_input_message(input->message, input->name, "%s", problem);
    return false;
}

static void end_unpacking(struct flw_unpacker *unpacker)
{
    flw_codec_destroy(unpacker->codec);
    free(unpacker->packed);
    free(unpacker);
}

bool flw_input_fill(struct flw_input *input, size_t count)
{
    size_t held = (size_t)(input->end - input->at);
    if (held >= count) {
        return true;
    }
    if (input->ended || input->failed) {
        return false;
    }
    input->begin_offset = flw_input_offset(input);
    memmove(input->buffer, input->at, held);
    input->begin = input->buffer;
    input->at = input->buffer;
    while (held < count) {
        unsigned char *out = input->buffer + held;
        size_t room = WINDOW_BYTES - held;
        size_t got =
            input->unpacker != NULL ? unpack_some(input, out, room) : read_some(input, out, room);
        held += got;
        input->end = input->buffer + held;
        if (got == 0) {
            input->ended = true;
            return false;
        }
        if (input->begin_offset + held > FLW_INPUT_MAX_BYTES) {
            return flw_input_fail(input, input->begin_offset + held, "more than 4 GiB: too large");
        }
    }
    return true;
}

bool flw_input_skip(struct flw_input *input, uint64_t count)
{
    while (count > 0) {
        if (input->at == input->end && !flw_input_fill(input, 1)) {
            return false;
        }
        uint64_t held = (uint64_t)(input->end - input->at);
        uint64_t step = count < held ? count : held;
        input->at += step;
        count -= step;
    }
    return true;
}

bool flw_input_drain(struct flw_input *input)
{
    do {
        input->at = input->end;
    } while (flw_input_fill(input, 1));
    return !input->failed;
}

void flw_input_blame(struct flw_input *input)
{
    struct flw_unpacker *unpacker = input->unpacker;
    if (unpacker == NULL || unpacker->has_ended) {
        return;
    }
    input->failed = false;
    while (!input->failed && unpack_some(input, input->buffer, WINDOW_BYTES) > 0) {
    }
    input->failed = true;
}

const char *flw_input_reason(const struct flw_input *input)
{
    char name[NAME_CHARACTERS + sizeof("...")];
    append_name(name, sizeof(name), input->name);
    return input->message + strlen(name) + strlen(": ");
}

static bool open_file(struct flw_input *input, const char *path)
{
    struct stat status;
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0 || fstat(input->fd, &status) != 0) {
        flw_input_message(input->message, path, "cannot open: %s", strerror(errno));
        return false;
    }
    if (S_ISDIR(status.st_mode)) {
        flw_input_message(input->message, path, "is a directory, not a trace");
        return false;
    }
    input->file_bytes = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    input->buffer = malloc(WINDOW_BYTES);
    if (input->buffer == NULL) {
        flw_input_message(input->message, path, "no memory to read it");
        return false;
    }
    size_t got = 0;
    while (got < FLW_CODEC_MAGIC_BYTES) {
        size_t more = read_some(input, input->buffer + got, PACKED_BYTES - got);
        if (input->failed) {
            return false;
        }
        if (more == 0) {
            break;
        }
        got += more;
    }
    if (flw_codec_tell(input->buffer, got) != FLW_CODEC_PLAIN) {
        return start_unpacking(input, input->buffer, got, true);
    }
    input->begin = input->buffer;
    input->at = input->buffer;
    input->end = input->buffer + got;
    return true;
}

bool flw_input_open(struct flw_input *input, const char *path, char *message)
{
    *input = (struct flw_input){.fd = -1, .name = path, .message = message};
    message[0] = '\0';
    if (!open_file(input, path)) {
        flw_input_close(input);
        return false;
    }
    return true;
}

bool flw_input_open_bytes(struct flw_input *input, const void *bytes, size_t count,
                          const char *name, char *message)
{
    static const unsigned char none[1] = {0};
    const unsigned char *first = count > 0 ? bytes : none;
    *input = (struct flw_input){.fd = -1, .name = name, .message = message};
    message[0] = '\0';
    if (flw_codec_tell(first, count) != FLW_CODEC_PLAIN) {
        input->buffer = malloc(WINDOW_BYTES);
        if (input->buffer == NULL) {
            flw_input_message(message, name, "no memory to unpack it");
        }
        if (input->buffer == NULL || !start_unpacking(input, first, count, false)) {
            flw_input_close(input);
            return false;
        }
        return true;
    }
    if (count > FLW_INPUT_MAX_BYTES) {
        flw_input_message(message, name, "more than 4 GiB: too large");
        return false;
    }
    input->begin = first;
    input->at = first;
    input->end = first + count;
    input->ended = true;
    return true;
}

void flw_input_close(struct flw_input *input)
{
    if (input->unpacker != NULL) {
        end_unpacking(input->unpacker);
    }
    free(input->buffer);
    if (input->fd >= 0) {
        close(input->fd);
    }
    *input = (struct flw_input){.fd = -1};
}
