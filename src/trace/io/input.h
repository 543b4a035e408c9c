/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bytes of one trace file, plain or packed (.xz, .gz, .zst), as a window that moves forward.
 * Does not: know what the bytes mean.
 *
 * A reader looks at [at, end) directly and calls flw_input_fill when it needs more. Offsets are
 * those of the unpacked bytes. The first failure writes the one-line message; later ones leave it
 * alone.
 */
#ifndef FLW_TRACE_IO_INPUT_H
#define FLW_TRACE_IO_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_TRACE_MESSAGE_BYTES 256

/* The most bytes that one flw_input_fill may ask for. */
#define FLW_INPUT_FILL_BYTES 65536

/* Unpacked bytes of one file. Indices of what a reader decodes fit 32 bits because of it. */
#define FLW_INPUT_MAX_BYTES (UINT64_C(0xFFFFFFFF))

/* Unpacked bytes may exceed the packed ones by this factor, plus the allowance. Traces reach 30. */
#define FLW_INPUT_EXPANSION       1000
#define FLW_INPUT_ALLOWANCE_BYTES (UINT64_C(64) << 20)

struct flw_unpacker;

struct flw_input {
    const unsigned char *at;       /* next byte of the window */
    const unsigned char *end;      /* one past its last */
    const unsigned char *begin;    /* its first */
    uint64_t begin_offset;         /* unpacked offset of `begin` */
    unsigned char *buffer;         /* owns the window; NULL where the caller's memory is it */
    int fd;                        /* -1: memory */
    uint64_t read_bytes;           /* of the file, packed or not */
    uint64_t file_bytes;           /* 0: not known */
    bool ended;                    /* nothing follows the window */
    bool failed;                   /* `message` says why */
    bool reads_on;                 /* past damage, where the format has chunks */
    struct flw_unpacker *unpacker; /* NULL: plain */
    const char *name;              /* borrowed */
    char *message;                 /* FLW_TRACE_MESSAGE_BYTES, borrowed */
};

/* False: nothing is held and the message names the file. `message` outlives the input. */
bool flw_input_open(struct flw_input *input, const char *path, char *message);
bool flw_input_open_bytes(struct flw_input *input, const void *bytes, size_t count,
                          const char *name, char *message);
void flw_input_close(struct flw_input *input);

/* True: at least `count` bytes are in the window. False: fewer are left, or reading failed. */
bool flw_input_fill(struct flw_input *input, size_t count);

/* Step over `count` bytes, however many. False: the input ends earlier. */
bool flw_input_skip(struct flw_input *input, uint64_t count);

/* Read to the end, so that an archive's checksum is verified. */
bool flw_input_drain(struct flw_input *input);

/* Write "NAME: byte OFFSET: ..." unless something failed before. Always returns false. */
bool flw_input_fail(struct flw_input *input, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for what comes too early: "NAME: byte OFFSET: the file ends inside WHAT". */
bool flw_input_fail_short(struct flw_input *input, const char *what);

/* After a reader has given up: where an archive is damaged further on, the message says that, for it
 * is why what came out of it made no sense. The window is of no use then. */
void flw_input_blame(struct flw_input *input);

/* Why it failed: the message without the name. */
const char *flw_input_reason(const struct flw_input *input);

static inline uint64_t flw_input_offset(const struct flw_input *input)
{
    return input->begin_offset + (uint64_t)(input->at - input->begin);
}

/* "NAME: ..." on one line, whatever the name holds. */
void flw_input_message(char *message, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
