/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: output files that are complete or absent: written beside their path and renamed, and packed if the name ends in
 * .xz, .gz or .zst.
 * Does not: replace devices, pipes, or descriptors under the system's names (/dev/fd/N): these are written directly. A
 * file that is a mount point cannot be replaced: the complete content is copied into it.
 */
#ifndef FLW_TRACE_IO_OUTPUT_H
#define FLW_TRACE_IO_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct flw_output_sink;

struct flw_output {
    FILE *file;       /* the caller prints here */
    FILE *packed;     /* receives the packed bytes; NULL: not packed */
    char *path;       /* final path; NULL: written in place */
    char *temporary;  /* path until then */
    const char *name; /* borrowed, for messages */
    struct flw_output_sink *sink;
};

/* True if this name is the file opened as standard output, which is neither opened again nor replaced. NULL is none. */
bool flw_output_is_stdout(const char *path);

/* True if flw_output_begin will probably succeed, checked without a change: the folder accepts new files, or the
 * existing file is writable. Otherwise see the message. */
bool flw_output_is_possible(const char *path, char *message);

/* Begin an output. Returns false if that fails: nothing is held; see the message (FLW_TRACE_MESSAGE_BYTES). */
bool flw_output_begin(struct flw_output *output, const char *path, char *message);

/* Complete the output. Returns false if a write failed; then there is no file, or still the previous one. */
bool flw_output_commit(struct flw_output *output, char *message);

void flw_output_abandon(struct flw_output *output);

#endif
