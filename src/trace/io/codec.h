/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: unpacking and packing .xz, .gz and .zst bytes, each with the usual library if the build has that library.
 * Does not: read files, or trust archives: the caller limits the size of unpacked bytes.
 *
 * Consecutive archives count as one. Checksums are verified.
 */
#ifndef FLW_TRACE_IO_CODEC_H
#define FLW_TRACE_IO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FLW_CODEC_MAGIC_BYTES 6 /* first bytes that identify a kind */

enum flw_codec_kind {
    FLW_CODEC_PLAIN,
    FLW_CODEC_XZ,
    FLW_CODEC_GZIP,
    FLW_CODEC_ZSTD
};

enum flw_codec_step {
    FLW_CODEC_MORE, /* the input is empty or the output is full */
    FLW_CODEC_ENDED, /* unpacking: the input ended with a complete archive; packing: the archive is complete */
    FLW_CODEC_FAILED /* see `problem` */
};

struct flw_codec;

/* Input and output of one step, which advances the pointers. */
struct flw_codec_buffers {
    const unsigned char *in;
    size_t in_count;
    bool in_is_last; /* `in` is the end of the input */
    unsigned char *out;
    size_t out_room;
};

enum flw_codec_kind flw_codec_tell(const unsigned char *bytes, size_t count);

/* Create a codec that packs, or one that unpacks. Returns NULL if that fails; *out_problem is the reason and the
 * remedy. */
struct flw_codec *flw_codec_create(enum flw_codec_kind kind, bool packs, const char **out_problem);
void flw_codec_destroy(struct flw_codec *codec);

/* Pack or unpack. Progresses whenever there is input and room. */
enum flw_codec_step flw_codec_run(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                  const char **out_problem);

/* ---- packing streams, which do not own their target ---- */

/* Return the kind that a path's extension names. */
enum flw_codec_kind flw_packer_tell(const char *path);

/* Open a stream that writes packed bytes to `to`. fclose completes the archive, leaves `to` open, and fails if a write
 * failed. The same bytes give the same archive with the same version of the library. Returns NULL if opening fails;
 * *out_problem is the reason and the remedy. Not for FLW_CODEC_PLAIN. */
FILE *flw_packer_open(FILE *to, enum flw_codec_kind kind, const char **out_problem);

#endif
