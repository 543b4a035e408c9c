/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the names of files that a process writes for the user: "%p" is replaced by the process id. */
#ifndef FLW_PRELOAD_FILENAME_H
#define FLW_PRELOAD_FILENAME_H

#include <stdbool.h>

#define FLW_FILENAME_BYTES 4200

/* Replace "%p" in `given` and put `insert` before the last name's ending. False: the result is too
 * long. */
bool flw_filename_compose(const char *given, const char *insert, int process,
                          char out[FLW_FILENAME_BYTES]);
/* Replace "%p"; without one, put the process id before the ending unless the name is `ours`. */
bool flw_filename_of_process(const char *given, bool ours, int process,
                             char out[FLW_FILENAME_BYTES]);

#endif
