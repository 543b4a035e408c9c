/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: dumps: what the rings hold at a moment, as a file.
 */
#ifndef FLW_RECORD_DUMP_H
#define FLW_RECORD_DUMP_H

#include "record/recorder.h"

/* io. IO or OUT_OF_HOST_MEMORY, and a line that says why; then there is no file, or the one that was
 * there before. */
fallow_status flw_dump_write(struct flw_recorder *recorder, const char *path, const char **out_why);

#endif
