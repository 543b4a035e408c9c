/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state that the readers of our two forms share: the trace so far, and the life of each block; and the walk
 * over all records that their printers share.
 * Does not: read or print a form, or write messages.
 *
 * INVARIANT: stages[] has an element for each block of the trace.
 */
#ifndef FLW_TRACE_FORMATS_READER_H
#define FLW_TRACE_FORMATS_READER_H

#include "record/record.h"
#include "trace/trace/build.h"

struct flw_reader {
    struct flw_build *build; /* borrowed */
    struct flw_trace_context
        context; /* of the next record, like the next two; `record` is ignored */
    struct flw_trace_remark remark;
    uint32_t stack;
    uint64_t time_ns; /* of the last event */
    uint8_t *stages;  /* of each block: live, freed, reusable */
    size_t stage_room;
};

/* Take a FREE, FREE_DONE or USE of an existing block. Returns NULL, or the text of the block's
 * state if the record is invalid in that state. */
const char *flw_reader_step(struct flw_reader *reader, uint8_t op, uint64_t block);

/* Add a checked BLOCK, SEGMENT or event with its context; its block and its name are numbers of the trace, its time is
 * reader->time_ns. Returns false if memory runs out. */
bool flw_reader_add(struct flw_reader *reader, const struct flw_record *record);

/* Release the reader's own state. */
void flw_reader_end(struct flw_reader *reader);

/* Call `put` with each segment and block of the start and each event, in order, with the stack, and with the remark
 * if the remark differs from that of the previous record, else NULL. Returns false as soon as `put` does. */
bool flw_trace_put_records(const struct flw_trace *trace,
                           bool (*put)(void *context, const struct flw_record *record,
                                       uint32_t stack, const struct flw_trace_remark *remark),
                           void *context);

#endif
