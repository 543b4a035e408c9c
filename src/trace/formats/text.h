/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading and writing the text form of a trace. Each trace has exactly one text, and a text that differs in one
 * byte is rejected or is another trace, so text to trace to text is byte-identical.
 *
 *   text     = magic device stream* fields [gaps] [begin] note* segment* initial* event*
 *   magic    = "#fallow-trace 1"
 *   device   = "device" N                    ordinal in the recording
 *   stream   = "stream" HANDLE               numbered from 0 in the order of these lines
 *   fields   = "fields none" | "fields" ["times"] ["addresses"] ["segments"]
 *   gaps     = "gaps" UNKNOWN LOST           frees skipped and added; only if one is not 0
 *   begin    = "begin_ns" NS                 time 0 in ns since 1970; only with times, and if it is known
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
 *   Each stack precedes the first segment, initial or event that has it, and is preceded by the frames that it
 *   is the first to have, in its own order:
 *     "L" LINE "FUNCTION" "FILE"               a frame; LINE 0 if unknown
 *     "W" FRAME...                             the stack, 1 to 1,000 frames, the innermost first
 *   A remark precedes the first event with another remark than the event before; at first there is none:
 *     "V" ("-" | "COMPILE") ("-" | "USER")     PyTorch's compile context and user metadata; "-": nothing
 *
 * One line each; one space between columns; the last line ends in a newline too. Numbers are
 * decimal without leading zeros: TIME in ns, never falling, 0 without "times"; SIZE in bytes;
 * STREAM a number of a stream line; ID the block's, counted from 0 in the order of P and A lines;
 * ADDRESS is "@" and a decimal number, present exactly if "addresses" is. NAME is printable and in
 * quotes; a quote inside needs nothing. FRAME is a number of an L line, from 0; stack=N of a W line, from 1.
 * FUNCTION, FILE, COMPILE and USER are any bytes but 0, at most 8,000, escaped as in line.h. P lines are
 * in address order.
 */
#ifndef FLW_TRACE_FORMATS_TEXT_H
#define FLW_TRACE_FORMATS_TEXT_H

#include <stdio.h>

#include "record/record.h"
#include "trace/io/input.h"
#include "trace/trace/build.h"

#define FLW_TEXT_MAGIC "#fallow-trace "

/* The line of a record, by the record's op: the letters, the word after the time, and the columns after that. Ops that
 * no record has, and CONTEXT, have no letters: NULL. */
#define FLW_TEXT_FORMS (FLW_RECORD_LONG_FIRST + FLW_TRACE_OP_COUNT)
extern const struct flw_text_form {
    const char *letters, *word, *columns;
} flw_text_forms[FLW_TEXT_FORMS];

enum flw_text_kind {
    FLW_TEXT_NUMBER,
    FLW_TEXT_NEW_BLOCK, /* the next block's number */
    FLW_TEXT_STREAM,
    FLW_TEXT_ADDRESS, /* in traces with addresses */
    FLW_TEXT_BYTES,   /* left out if unknown */
    FLW_TEXT_CONTEXT, /* left out if 0 */
    FLW_TEXT_SIZES    /* large or small, expandable */
};

/* A column, by its letter in a form's columns. */
extern const struct flw_text_column {
    const char *before; /* the space, and a key or a sign */
    enum flw_text_kind kind;
    bool is_short; /* a uint32_t, else a uint64_t */
    size_t field;  /* offset in struct flw_record */
} flw_text_columns[1 + 'z'];

/* Read a trace into the build; the input is at the first byte. Returns false if that fails; see the input's message. */
bool flw_text_read(struct flw_input *input, int device, struct flw_build *build);

/* Print the text that flw_text_read reads as the same trace. Write errors are visible in ferror. Returns NULL, or the
 * reason why nothing was printed. */
const char *flw_text_print(const struct flw_trace *trace, FILE *file);

#endif
