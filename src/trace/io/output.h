/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: files that are complete or absent: written beside their place and renamed into it, packed where
 * the name ends in .xz, .gz or .zst.
 * Does not: apply that to what is no regular file (a device, a pipe), nor to a descriptor by the name that the system
 * gives it: they are written as they are. A file that is a mount of its own cannot be replaced: it gets the content once
 * that is complete.
 */
#ifndef FLW_TRACE_IO_OUTPUT_H
#define FLW_TRACE_IO_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct flw_output_sink;

struct flw_output {
    FILE *file;       /* to print to */
    FILE *packed;     /* where its bytes go, packed; NULL: it is the file itself */
    char *path;       /* where it is to lie; NULL: written in place */
    char *temporary;  /* where it lies until then */
    const char *name; /* borrowed, for messages */
    struct flw_output_sink *sink;
};

/* Whether an output of this name is what was opened as standard output, which is not opened again, nor replaced. */
bool flw_output_is_stdout(const char *path);

/* Whether begin may succeed, as far as can be told without a change: there is a folder that takes files, or what is
 * there takes bytes. False: the message says why. */
bool flw_output_is_possible(const char *path, char *message);

/* False: nothing is held, the message (FLW_TRACE_MESSAGE_BYTES) says why. */
bool flw_output_begin(struct flw_output *output, const char *path, char *message);

/* False: some of it could not be written; then there is no file, or the one that was there before.
 */
bool flw_output_commit(struct flw_output *output, char *message);

void flw_output_abandon(struct flw_output *output);

#endif
