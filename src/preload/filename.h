/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the names of the files that a process writes for its user: "%p" is replaced by the process's number.
 */
#ifndef FLW_PRELOAD_FILENAME_H
#define FLW_PRELOAD_FILENAME_H

#include <stdbool.h>

#define FLW_FILENAME_BYTES 4200

/* Replace "%p" in `given` and put `insert` before the last name's ending. Returns false if that is too long. */
bool flw_filename_compose(const char *given, const char *insert, int process,
                          char out[FLW_FILENAME_BYTES]);
/* Replace "%p"; without one, put the process's number before the ending unless the name is `ours`. */
bool flw_filename_of_process(const char *given, bool ours, int process,
                             char out[FLW_FILENAME_BYTES]);

#endif
