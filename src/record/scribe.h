/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one trace file during writing: the numbers of live blocks and of call stacks, and the
 * gaps.
 *
 * Records may be lost. A free of a block that the file does not have is omitted and counted;
 * before an allocation at an address that is still allocated in the file a FREE is inserted and
 * counted. Both counts are the file's gaps. */
#ifndef FLW_RECORD_SCRIBE_H
#define FLW_RECORD_SCRIBE_H

#include "record/callstack.h"
#include "record/names.h"
#include "record/warm.h"

struct flw_scribe_settings {
    int fd; /* the scribe's from now on, even if the open fails */
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

struct flw_scribe;

/* NULL: no memory. */
struct flw_scribe *flw_scribe_open(const struct flw_scribe_settings *settings);

/* Write the initial blocks, before any record. False as below. */
bool flw_scribe_start(struct flw_scribe *scribe, const struct flw_warm *warm);

/* Write records, in order, with ticks between two moments. False: the disk is full or failing,
 * there is no memory, or there are more than 2^32 blocks; all later calls fail too. */
bool flw_scribe_take(struct flw_scribe *scribe, struct flw_merge *merge,
                     const struct flw_tsc_pair *from, const struct flw_tsc_pair *to);

/* Live blocks with a call stack, by stack. */
struct flw_scribe_holder {
    uint32_t stack; /* in the table of call stacks */
    uint64_t bytes, count;
};

/* List the `most` largest holders, the largest first, and then the sum of the others, with their
 * number as `stack`. Returns the length. O(stacks * most). */
size_t flw_scribe_list_holders(const struct flw_scribe *scribe, struct flw_scribe_holder *out,
                               size_t most, struct flw_scribe_holder *out_rest);

/* Pass everything to the operating system. */
bool flw_scribe_flush(struct flw_scribe *scribe);

/* Write the last records: losses, the gaps, the end of the file. */
bool flw_scribe_end(struct flw_scribe *scribe, uint64_t lost_count);

/* Events so far, and how many of them are missing in the file. */
struct flw_scribe_tally {
    uint64_t event_count, missing_count;
};
struct flw_scribe_tally flw_scribe_count(const struct flw_scribe *scribe);

/* Return one line; NULL: no problem. */
const char *flw_scribe_problem(const struct flw_scribe *scribe);

/* Close the file. True: the system accepted everything written. NULL is ignored. */
bool flw_scribe_close(struct flw_scribe *scribe);

/* In the child of a fork: the file is the parent's. */
void flw_scribe_disown(struct flw_scribe *scribe);

#endif
