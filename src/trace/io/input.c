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

#include "trace/io/progress.h"

#define WINDOW_BYTES    (1u << 18)
#define PACKED_BYTES    (1u << 16)
#define NAME_CHARACTERS 96 /* most characters of a path in a message: the end */

void (*flw_trace_listener)(const struct flw_trace_progress *progress);

static void append_name(char *out, size_t room, const char *name)
{
    size_t length = strlen(name);
    const char *tail = length > NAME_CHARACTERS ? name + length - NAME_CHARACTERS : name;
    snprintf(out, room, "%s%s", tail == name ? "" : "...", tail);
}

void flw_input_message(char *message, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_name(message, FLW_TRACE_MESSAGE_BYTES, name);
    size_t used = strlen(message);
    used += (size_t)snprintf(message + used, FLW_TRACE_MESSAGE_BYTES - used, ": ");
    vsnprintf(message + used, FLW_TRACE_MESSAGE_BYTES - used, format, arguments);
    va_end(arguments);
    for (char *c = message; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || (unsigned char)*c == 0x7F ? '?' : *c;
    }
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
    if (input->fd < 0) {
        got = (ssize_t)(room < input->memory_bytes ? room : input->memory_bytes);
        memcpy(out, input->memory, (size_t)got);
        input->memory += got;
        input->memory_bytes -= (size_t)got;
        return (size_t)got;
    }
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

/* Read more packed bytes for the codec, which has none. */
static bool feed(struct flw_input *input)
{
    struct flw_unpacker *unpacker = &input->unpacker;
    size_t got = read_some(input, unpacker->packed, PACKED_BYTES);
    unpacker->buffers.in = unpacker->packed;
    unpacker->buffers.in_count = got;
    unpacker->buffers.in_is_last = got == 0;
    unpacker->packed_bytes += got;
    return !input->failed;
}

/* Read like read_some, through the unpacker. */
static size_t unpack_some(struct flw_input *input, unsigned char *out, size_t room)
{
    struct flw_unpacker *unpacker = &input->unpacker;
    struct flw_codec_buffers *buffers = &unpacker->buffers;
    buffers->out = out;
    buffers->out_room = room;
    while (buffers->out_room == room && !unpacker->has_ended && unpacker->problem == NULL) {
        if (buffers->in_count == 0 && !buffers->in_is_last && !feed(input)) {
            return 0;
        }
        unpacker->has_ended =
            flw_codec_run(unpacker->codec, buffers, &unpacker->problem) == FLW_CODEC_ENDED;
    }
    if (unpacker->problem != NULL && buffers->out_room == room) {
        input->failed = true;
        flw_input_message(input->message, input->name, "packed byte %llu: %s",
                          (unsigned long long)(unpacker->packed_bytes - buffers->in_count),
                          unpacker->problem);
        return 0;
    }
    unpacker->unpacked_bytes += room - buffers->out_room;
    if (unpacker->unpacked_bytes >
        FLW_INPUT_ALLOWANCE_BYTES + unpacker->packed_bytes * FLW_INPUT_EXPANSION) {
        flw_input_fail(input, unpacker->unpacked_bytes,
                       "unpacks to more than %d times its size: refused", FLW_INPUT_EXPANSION);
        return 0;
    }
    return room - buffers->out_room;
}

static void set_window(struct flw_input *input, const unsigned char *bytes, size_t count)
{
    input->begin = bytes;
    input->at = bytes;
    input->end = bytes + count;
}

/* Start unpacking. The first `count` packed bytes are in the buffer, which becomes the window. */
static bool start_unpacking(struct flw_input *input, enum flw_codec_kind kind, size_t count)
{
    struct flw_unpacker *unpacker = &input->unpacker;
    const char *problem = "no memory to unpack it";
    unpacker->packed = malloc(PACKED_BYTES);
    unpacker->codec = unpacker->packed != NULL ? flw_codec_create(kind, false, &problem) : NULL;
    if (unpacker->codec == NULL) {
        flw_input_message(input->message, input->name, "%s", problem);
        return false;
    }
    memcpy(unpacker->packed, input->buffer, count);
    unpacker->buffers.in = unpacker->packed;
    unpacker->buffers.in_count = count;
    unpacker->packed_bytes = count;
    set_window(input, input->buffer, 0);
    return true;
}

/* Move the unread bytes to the start of a buffer of at least `room` bytes. */
static bool make_room(struct flw_input *input, size_t room)
{
    size_t held = (size_t)(input->end - input->at);
    input->begin_offset = flw_input_offset(input);
    memmove(input->buffer, input->at, held);
    set_window(input, input->buffer, held);
    if (room > input->room) {
        unsigned char *buffer = realloc(input->buffer, room);
        if (buffer == NULL) {
            input->failed = true;
            flw_input_message(input->message, input->name, "no memory to read it");
            return false;
        }
        input->buffer = buffer;
        input->room = room;
        set_window(input, buffer, held);
    }
    return true;
}

bool flw_input_fill(struct flw_input *input, size_t count)
{
    size_t held = (size_t)(input->end - input->at);
    if (held >= count) {
        return true;
    }
    if (input->ended || input->failed || !make_room(input, count)) {
        return false;
    }
    while (held < count) {
        unsigned char *out = input->buffer + held;
        size_t room = input->room - held;
        size_t got = (input->unpacker.codec != NULL ? unpack_some : read_some)(input, out, room);
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
    if (input->unpacker.codec == NULL || input->unpacker.has_ended) {
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

static bool make_window(struct flw_input *input, const char *problem)
{
    input->buffer = malloc(WINDOW_BYTES);
    input->room = WINDOW_BYTES;
    if (input->buffer == NULL) {
        flw_input_message(input->message, input->name, "%s", problem);
    }
    return input->buffer != NULL;
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
    if (!make_window(input, "no memory to read it")) {
        return false;
    }
    size_t got = 0, more = 1;
    while (got < FLW_CODEC_MAGIC_BYTES && more > 0) {
        more = read_some(input, input->buffer + got, PACKED_BYTES - got);
        got += more;
    }
    enum flw_codec_kind kind = flw_codec_tell(input->buffer, got);
    set_window(input, input->buffer, got);
    return !input->failed && (kind == FLW_CODEC_PLAIN || start_unpacking(input, kind, got));
}

static bool open_bytes(struct flw_input *input, const void *bytes, size_t count)
{
    static const unsigned char none[1] = {0};
    const unsigned char *first = count > 0 ? bytes : none;
    enum flw_codec_kind kind = flw_codec_tell(first, count);
    if (kind != FLW_CODEC_PLAIN) {
        input->memory = first;
        input->memory_bytes = count;
        return make_window(input, "no memory to unpack it") && start_unpacking(input, kind, 0);
    }
    if (count > FLW_INPUT_MAX_BYTES) {
        flw_input_message(input->message, input->name, "more than 4 GiB: too large");
        return false;
    }
    set_window(input, first, count);
    input->ended = true;
    return true;
}

void flw_input_close(struct flw_input *input)
{
    flw_codec_destroy(input->unpacker.codec);
    free(input->unpacker.packed);
    free(input->buffer);
    if (input->fd >= 0) {
        close(input->fd);
    }
    *input = (struct flw_input){.fd = -1};
}

static bool give_up(struct flw_input *input)
{
    flw_input_close(input);
    return false;
}

bool flw_input_open(struct flw_input *input, const char *path, char *message)
{
    *input = (struct flw_input){.fd = -1, .name = path, .message = message};
    message[0] = '\0';
    return open_file(input, path) || give_up(input);
}

bool flw_input_open_bytes(struct flw_input *input, const void *bytes, size_t count,
                          const char *name, char *message)
{
    *input = (struct flw_input){.fd = -1, .name = name, .message = message};
    message[0] = '\0';
    return open_bytes(input, bytes, count) || give_up(input);
}
