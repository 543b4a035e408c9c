/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: dumps: the present contents of the rings, as a file. */
#ifndef FLW_RECORD_DUMP_H
#define FLW_RECORD_DUMP_H

#include "record/recorder.h"

/* Write a dump. IO or OUT_OF_HOST_MEMORY, with a logged reason; then there is no file, or the
 * previous one. `io` held. */
fallow_status flw_dump_write(struct flw_recorder *recorder, const char *path, const char **out_why);

#endif
