/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: unpacking and packing .xz, .gz and .zst bytes, each through its usual library where the build
 * has it.
 * Does not: read files, or trust archives: what one may unpack to is for the caller to bound.
 *
 * Archives that follow one another are one. Checksums are verified.
 */
#ifndef FLW_TRACE_IO_CODEC_H
#define FLW_TRACE_IO_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FLW_CODEC_MAGIC_BYTES 6 /* as many of the first bytes tell the kinds apart */

enum flw_codec_kind {
    FLW_CODEC_PLAIN,
    FLW_CODEC_XZ,
    FLW_CODEC_GZIP,
    FLW_CODEC_ZSTD
};

enum flw_codec_step {
    FLW_CODEC_MORE,  /* the input is used up or the output is full */
    FLW_CODEC_ENDED, /* the input has ended where an archive did */
    FLW_CODEC_FAILED /* `problem` says why */
};

struct flw_codec;

/* What one step may take and give; moved on by what it took and gave. */
struct flw_codec_buffers {
    const unsigned char *in;
    size_t in_count;
    bool in_is_last; /* nothing follows `in` */
    unsigned char *out;
    size_t out_room;
};

enum flw_codec_kind flw_codec_tell(const unsigned char *bytes, size_t count);

/* One that unpacks, one that packs. NULL: `*out_problem` says why, and what to do. */
struct flw_codec *flw_codec_create(enum flw_codec_kind kind, const char **out_problem);
struct flw_codec *flw_codec_create_packer(enum flw_codec_kind kind, const char **out_problem);
void flw_codec_destroy(struct flw_codec *codec);

/* Makes progress wherever there is input and room. */
enum flw_codec_step flw_codec_unpack(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                     const char **out_problem);

/* The same the other way. ENDED: the archive of all up to what was last is complete. */
enum flw_codec_step flw_codec_pack(struct flw_codec *codec, struct flw_codec_buffers *buffers);

/* ---- a stream that packs; it does not own the one that it packs to ---- */

/* As the ending of a path asks for. */
enum flw_codec_kind flw_packer_tell(const char *path);

/* A stream whose bytes go to `to`, packed; fclose ends the archive and leaves `to` open, and fails where
 * some of it could not be written. The same bytes give the same archive with one version of the library.
 * NULL: `*out_problem` says why, and what to do. Not of FLW_CODEC_PLAIN. */
FILE *flw_packer_open(FILE *to, enum flw_codec_kind kind, const char **out_problem);

#endif
