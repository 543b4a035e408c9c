/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: text that is written whole or not at all: built in memory, then written beside the target
 * and renamed over it. "-" is standard output; a target that is no regular file is written in
 * place.
 */
#ifndef FLW_TOOL_TEXTFILE_H
#define FLW_TOOL_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>

#define FLW_TEXTFILE_MESSAGE_BYTES 512

/* False: message names the file and what to do; the file is as it was before. */
bool flw_textfile_write(const char *path, const char *text, size_t length, char *message);

#endif
