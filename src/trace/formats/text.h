/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the text form of a trace, both ways. Each trace has exactly one text and a text that differs
 * from it in one byte is refused or another trace, so text to trace to text is byte-identical.
 *
 *   text     = magic device stream* fields [gaps] [begin] note* segment* initial* event*
 *   magic    = "#fallow-trace 1"
 *   device   = "device" N                    ordinal in the recording
 *   stream   = "stream" HANDLE               numbered from 0 in the order of these lines
 *   fields   = "fields none" | "fields" ["times"] ["addresses"] ["segments"]
 *   gaps     = "gaps" UNKNOWN LOST           frees skipped and put in; only where one is not 0
 *   begin    = "begin_ns" NS                 when time 0 was, since 1970; only with times, and where it is known
 *   note     = KEY VALUE | "# " TEXT         kept as it is; KEY of a-z, 0-9, _; not a key above
 *   segment  = "S" 0 SIZE STREAM ("large" | "small") ["expandable"] [ADDRESS] ["pool=" N] ["stack=" N]
 *   initial  = "P" 0 ID SIZE STREAM [ADDRESS] CONTEXT
 *   context  = ["thread=" N] ["tag=" N] ["pool=" N] ["stack=" N]      those that are not 0
 *   event    = one of these, and its context before the NAME, which ends the line
 *     "A" TIME ID SIZE STREAM [ADDRESS]        allocated
 *     "F" TIME ID STREAM                       freed by the user
 *     "C" TIME ID STREAM                       that free is complete
 *     "U" TIME ID STREAM                       the stream uses the block
 *     "S+" TIME SIZE STREAM [ADDRESS]          a segment is taken; "S-" released, "M+" mapped,
 *                                              "M-" unmapped
 *     "O" TIME SIZE STREAM ["free=" N] ["largest=" N]      out of memory, what was free
 *     "N" TIME [NAME]                          mark
 *     "B" TIME NAME, "E" TIME NAME             a phase begins, ends
 *     "Y" TIME "device"                        the host waited for the device
 *     "Y" TIME "stream" STREAM                 ... for a stream; "event": for an event of it
 *     "Y" TIME "wait" STREAM OTHER             the stream waits for the other one
 *     "G+" TIME STREAM, "G-" TIME STREAM       capture into the context's pool begins, ends
 *     "X" TIME                                 the cache is emptied
 *     "K" TIME NAME                            a setting
 *     "D" TIME COUNT                           so many events are missing
 *   Before the first segment, initial or event with a stack, that stack, and before it the frames that it
 *   is the first to have, in its own order:
 *     "L" LINE "FUNCTION" "FILE"               a frame; LINE 0 where it is not known
 *     "W" FRAME...                             the stack, 1 to 1,000 frames, the innermost first
 *   Before the first event beside whose stack another thing is said than before it, at first nothing:
 *     "V" ("-" | "COMPILE") ("-" | "USER")     PyTorch's compile context and user metadata; "-": nothing
 *
 * One line each; one space between columns; the last line ends in a newline too. Numbers are
 * decimal without leading zeros: TIME in ns, never falling, 0 without "times"; SIZE in bytes;
 * STREAM a number of a stream line; ID the block's, counted from 0 in the order of P and A lines;
 * ADDRESS is "@" and a decimal number, there exactly where "addresses" is. NAME is printable and in
 * quotes; a quote inside needs nothing. FRAME is a number of an L line, from 0; stack=N of a W line, from 1.
 * FUNCTION, FILE, COMPILE and USER are any bytes but 0, at most 8,000, escaped as line.h says. P lines are in address order.
 */
#ifndef FLW_TRACE_FORMATS_TEXT_H
#define FLW_TRACE_FORMATS_TEXT_H

#include <stdio.h>

#include "trace/io/input.h"
#include "trace/trace/trace.h"

#define FLW_TEXT_MAGIC "#fallow-trace "

/* The input is at its first byte. False: nothing is held, the input's message says why. */
bool flw_text_read(struct flw_input *input, int device, struct flw_trace **out_trace);

/* What flw_text_read reads back as the same trace. A failing file shows in ferror. False: no memory. */
bool flw_text_print(const struct flw_trace *trace, FILE *file);

#endif
