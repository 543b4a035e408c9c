/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: packing what is written to a stream as .xz, .gz or .zst, each through its usual library where
 * the build has it. Does not: unpack (codec.h), or own the stream that it packs to.
 */
#ifndef FLW_TRACE_PACKER_H
#define FLW_TRACE_PACKER_H

#include <stdio.h>

#include "trace/codec.h"

/* As the ending of a path asks for. */
enum flw_codec_kind flw_packer_tell(const char *path);

/* A stream whose bytes go to `to`, packed; fclose ends the archive and leaves `to` open, and fails where
 * some of it could not be written. The same bytes give the same archive with one version of the library.
 * NULL: `*out_problem` says why, and what to do. Not of FLW_CODEC_PLAIN. */
FILE *flw_packer_open(FILE *to, enum flw_codec_kind kind, const char **out_problem);

#endif
