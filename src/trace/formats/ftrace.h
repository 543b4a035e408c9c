/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading trace files of our own, and writing whole traces as such. record/ftracewriter.h
 * specifies their form.
 */
#ifndef FLW_TRACE_FORMATS_FTRACE_H
#define FLW_TRACE_FORMATS_FTRACE_H

#include <stdio.h>

#include "record/ftracewriter.h"
#include "trace/io/input.h"
#include "trace/trace/trace.h"

/* The input is at its first byte. False: nothing is held, the input's message says why. A file that
 * is damaged or not finished is read up to there, and (*out_trace)->truncation says so; with
 * input->reads_on, from the next whole chunk on too, with a DROP event between. */
bool flw_ftrace_read(struct flw_input *input, int device, struct flw_trace **out_trace);

/* Into a file of the caller's. */
struct flw_ftrace_sink flw_ftrace_file_sink(FILE *file);

/* A whole trace. False: no memory, or the file failed. */
bool flw_ftrace_print(const struct flw_trace *trace, enum flw_record_codec codec, FILE *file);

#endif
