/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the text form of a trace, both ways.
 */
#ifndef FLW_TRACE_TEXT_H
#define FLW_TRACE_TEXT_H

#include <stdio.h>

#include "trace/input.h"
#include "trace/trace.h"

#define FLW_TEXT_MAGIC "#fallow-trace "

/* The input is at its first byte. False: nothing is held, the input's message says why. */
bool flw_text_read(struct flw_input *input, struct flw_trace **out_trace);

/* What flw_text_read reads back as the same trace. A failing file shows in ferror. */
void flw_text_print(const struct flw_trace *trace, FILE *file);

#endif
