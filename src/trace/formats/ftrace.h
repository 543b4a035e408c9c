/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading trace files of our own format, which record/ftracewriter.h specifies, and writing whole traces in it.
 */
#ifndef FLW_TRACE_FORMATS_FTRACE_H
#define FLW_TRACE_FORMATS_FTRACE_H

#include <stdio.h>

#include "record/ftracewriter.h"
#include "trace/io/input.h"
#include "trace/trace/build.h"

/* Read a trace into the build; the input is at the first byte. Returns false if that fails; see the input's message. A
 * damaged or unfinished file is read up to the damage, which the trace's truncation describes; with
 * input->reads_on, also from the next whole chunk on, with a DROP event between. */
bool flw_ftrace_read(struct flw_input *input, int device, struct flw_build *build);

/* Return a sink that writes to the caller's file. */
struct flw_ftrace_sink flw_ftrace_file_sink(FILE *file);

/* Write a whole trace. Returns false if memory runs out or the file failed. */
bool flw_ftrace_print(const struct flw_trace *trace, enum flw_record_codec codec, FILE *file);
/* The same in codec 1, for the table of formats. */
const char *flw_ftrace_print_packed(const struct flw_trace *trace, FILE *file);

#endif
