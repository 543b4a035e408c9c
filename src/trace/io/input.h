/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bytes of one trace file, plain or packed (.xz, .gz, .zst), as a window that moves forward.
 * Does not: interpret the bytes.
 *
 * A reader reads [at, end) directly and calls flw_input_fill if it needs more. Offsets count unpacked bytes. The first
 * failure writes the one-line message; later ones do not change it.
 */
#ifndef FLW_TRACE_IO_INPUT_H
#define FLW_TRACE_IO_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/io/codec.h"

#define FLW_TRACE_MESSAGE_BYTES 256

/* The bytes in which a reader looks for the kind of a file, and the longest line. */
#define FLW_INPUT_FILL_BYTES 65536

/* Most unpacked bytes of a file, so that indices of decoded objects fit 32 bits. */
#define FLW_INPUT_MAX_BYTES (UINT64_C(0xFFFFFFFF))

/* Most unpacked bytes per packed byte, beyond the allowance. Traces reach 30. */
#define FLW_INPUT_EXPANSION       1000
#define FLW_INPUT_ALLOWANCE_BYTES (UINT64_C(64) << 20)

/* All zero: the file is plain. */
struct flw_unpacker {
    struct flw_codec *codec;
    struct flw_codec_buffers buffers;
    unsigned char *packed;
    uint64_t packed_bytes; /* passed to the codec, or soon to be */
    uint64_t unpacked_bytes;
    const char *problem; /* after the bytes that were delivered; reported when more are needed */
    bool has_ended;
};

struct flw_input {
    const unsigned char *at;     /* next byte of the window */
    const unsigned char *end;    /* one past the last byte of the window */
    const unsigned char *begin;  /* first byte of the window */
    uint64_t begin_offset;       /* unpacked offset of `begin` */
    unsigned char *buffer;       /* owns the window; NULL: the window is the caller's memory */
    size_t room;                 /* of the buffer */
    int fd;                      /* -1: memory */
    const unsigned char *memory; /* packed bytes not yet read; the caller's */
    size_t memory_bytes;
    uint64_t read_bytes; /* of the file, packed or not */
    uint64_t file_bytes; /* 0: unknown */
    bool ended;          /* the file ends with the window */
    bool failed;         /* see `message` */
    bool reads_on;       /* continue past damage, if the format has chunks */
    struct flw_unpacker unpacker;
    const char *name; /* borrowed */
    char *message;    /* FLW_TRACE_MESSAGE_BYTES, borrowed */
};

/* Open a file. Returns false if that fails: nothing is held, and the message has the file's name. `message` must
 * outlive the input. */
bool flw_input_open(struct flw_input *input, const char *path, char *message);
bool flw_input_open_bytes(struct flw_input *input, const void *bytes, size_t count,
                          const char *name, char *message);
void flw_input_close(struct flw_input *input);

/* Make the window hold at least `count` bytes, and grow if necessary. Returns false if fewer are left or reading failed. */
bool flw_input_fill(struct flw_input *input, size_t count);

/* Skip `count` bytes, any number. Returns false if the input ends earlier. */
bool flw_input_skip(struct flw_input *input, uint64_t count);

/* Read to the end, so that an archive's checksum is verified. */
bool flw_input_drain(struct flw_input *input);

/* Write "NAME: byte OFFSET: ..." unless something failed before. Always returns false. */
bool flw_input_fail(struct flw_input *input, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fail in the same way with "NAME: byte OFFSET: the file ends inside WHAT". */
bool flw_input_fail_short(struct flw_input *input, const char *what);

/* Replace a reader's message if the archive is damaged further on, because that damage explains the reader's failure.
 * The window is invalid afterwards. */
void flw_input_blame(struct flw_input *input);

/* Return the message without the name. */
const char *flw_input_reason(const struct flw_input *input);

static inline uint64_t flw_input_offset(const struct flw_input *input)
{
    return input->begin_offset + (uint64_t)(input->at - input->begin);
}

/* Write "NAME: ..." on one line, whatever bytes the name has. */
void flw_input_message(char *message, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
