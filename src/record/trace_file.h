/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one trace file during writing: the numbers of live blocks and of call stacks, and the
 * gaps.
 *
 * Records may be lost. A free of a block that the file does not have is omitted and counted;
 * before an allocation at an address that is still allocated in the file a FREE is inserted and
 * counted. Both counts are the file's gaps. */
#ifndef FLW_RECORD_TRACE_FILE_H
#define FLW_RECORD_TRACE_FILE_H

#include "record/callstack.h"
#include "record/initial_blocks.h"
#include "record/names.h"

struct flw_trace_file_settings {
    int fd; /* the trace file's from now on, even if the open fails */
    uint32_t device;
    bool uses_tsc,
        is_whole; /* for the notes: the clock; nothing was overwritten before it begins */
    uint64_t wall_ns;
    struct flw_tsc_pair zero; /* origin of times */
    struct flw_names *names;
    struct flw_callstacks *callstacks; /* of the records' stacks; NULL: they have none */
};

/* Call stacks in a file: by number in the table, the file's number plus 1. Zeros: none. */
struct flw_callstack_file {
    struct flw_addressmap texts; /* hash of a text -> number */
    const char **text_list;
    uint32_t *frames, *stacks; /* by number; 0: not yet */
    size_t text_count, text_room, frame_room, stack_room;
    uint32_t frame_count, stack_count;
};

/* Return the number of a stack in the file, after writing the stack if it is new. 0 is 0. False:
 * the writer failed, or no memory. For the thread that writes the file. */
bool flw_callstacks_write(struct flw_callstacks *all, uint32_t number,
                          struct flw_ftrace_writer *writer, struct flw_callstack_file *file,
                          uint32_t *out);
void flw_callstack_file_finish(struct flw_callstack_file *file);

struct flw_trace_file;

/* NULL: no memory. */
struct flw_trace_file *flw_trace_file_open(const struct flw_trace_file_settings *settings);

/* Write the initial blocks, before any record. False as below. */
bool flw_trace_file_start(struct flw_trace_file *trace_file,
                          const struct flw_initial_blocks *initial);

/* Write records, in order, with ticks between two moments. False: the disk is full or failing,
 * there is no memory, or there are more than 2^32 blocks; all later calls fail too. */
bool flw_trace_file_write(struct flw_trace_file *trace_file, struct flw_merge *merge,
                          const struct flw_tsc_pair *from, const struct flw_tsc_pair *to);

/* Live blocks with a call stack, by stack. */
struct flw_trace_file_holder {
    uint32_t stack; /* in the table of call stacks */
    uint64_t bytes, count;
};

/* List the `most` largest holders, the largest first, and then the sum of the others, with their
 * number as `stack`. Returns the length. O(stacks * most). */
size_t flw_trace_file_list_holders(const struct flw_trace_file *trace_file,
                                   struct flw_trace_file_holder *out, size_t most,
                                   struct flw_trace_file_holder *out_rest);

/* Pass everything to the operating system. */
bool flw_trace_file_flush(struct flw_trace_file *trace_file);

/* Write the last records: losses, the gaps, the end of the file. */
bool flw_trace_file_end(struct flw_trace_file *trace_file, uint64_t lost_count);

/* Events so far, and how many of them are missing in the file. */
struct flw_trace_file_tally {
    uint64_t event_count, missing_count;
};
struct flw_trace_file_tally flw_trace_file_count(const struct flw_trace_file *trace_file);

/* Return one line; NULL: no problem. */
const char *flw_trace_file_problem(const struct flw_trace_file *trace_file);

/* Close the file. True: the system accepted everything written. NULL is ignored. */
bool flw_trace_file_close(struct flw_trace_file *trace_file);

/* In the child of a fork: the file is the parent's. */
void flw_trace_file_disown(struct flw_trace_file *trace_file);

#endif
