/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the log that RMM's logging resource writes, both ways.
 */
#ifndef FLW_TRACE_FORMATS_RMM_H
#define FLW_TRACE_FORMATS_RMM_H

#include <stdio.h>

#include "trace/io/input.h"
#include "trace/trace/build.h"

#define FLW_RMM_MAGIC "Thread,Time,Action,Pointer,Size,Stream"

/* Read a log into the build; the input is at the first byte. Returns false if that fails; see the input's message. */
bool flw_rmm_read(struct flw_input *input, int device, struct flw_build *build);

/* Print the log of a trace. Returns NULL. */
const char *flw_rmm_print(const struct flw_trace *trace, FILE *file);

#endif
