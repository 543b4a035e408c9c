/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one trace file while records are written into it: the numbers of live blocks and of call stacks, and what is
 * missing.
 *
 * Records may be lost. A free of a block that the file does not know is left out and counted; before
 * an allocation at an address that is still allocated by the file a FREE is put in and counted.
 * Both counts go into the file as its gaps.
 */
#ifndef FLW_RECORD_SCRIBE_H
#define FLW_RECORD_SCRIBE_H

#include "record/callstack.h"
#include "record/names.h"
#include "record/warm.h"

struct flw_scribe_settings {
    int fd; /* the scribe's from now on, also where it cannot be opened */
    uint32_t device;
    bool uses_tsc,
        is_whole; /* for the notes: the clock; nothing was overwritten before it begins */
    uint64_t wall_ns;
    struct flw_tsc_pair zero; /* what times are counted from */
    struct flw_names *names;
    struct flw_callstacks *callstacks; /* of the records' stacks; NULL: they have none */
};

/* Call stacks that a file has: by their number in the table, the one there plus 1. All zero: none. */
struct flw_callstack_file {
    struct flw_addressmap texts; /* hash of a text -> number */
    const char **text_list;
    uint32_t *frames, *stacks; /* by number; 0: not yet */
    size_t text_count, text_room, frame_room, stack_room;
    uint32_t frame_count, stack_count;
};

/* The number that a stack has in the file, which is told of it first where it is new. 0 is 0. False: the writer failed,
 * or there is no memory. Whoever writes the file. */
bool flw_callstacks_write(struct flw_callstacks *all, uint32_t number,
                          struct flw_ftrace_writer *writer, struct flw_callstack_file *file,
                          uint32_t *out);
void flw_callstack_file_finish(struct flw_callstack_file *file);

struct flw_scribe;

/* NULL: no memory. */
struct flw_scribe *flw_scribe_open(const struct flw_scribe_settings *settings);

/* The blocks of the start. Before any record. False as below. */
bool flw_scribe_start(struct flw_scribe *scribe, const struct flw_warm *warm);

/* Records, in order; ticks lie between two moments. False: the disk is full or failing, there is no
 * memory, or there are more than 2^32 blocks; all later ones fail too. */
bool flw_scribe_take(struct flw_scribe *scribe, struct flw_merge *merge,
                     const struct flw_tsc_pair *from, const struct flw_tsc_pair *to);

/* What is live whose allocation has a call stack, by stack. */
struct flw_scribe_holder {
    uint32_t stack; /* in the table of call stacks */
    uint64_t bytes, count;
};

/* The `most` that hold most, the largest first, and the sum of the others, whose `stack` is how many they are. Returns
 * how many. O(stacks * most). */
size_t flw_scribe_list_holders(const struct flw_scribe *scribe, struct flw_scribe_holder *out,
                               size_t most, struct flw_scribe_holder *out_rest);

/* Hand all there is to the operating system. */
bool flw_scribe_flush(struct flw_scribe *scribe);

/* The last records: what the rings never found room for, the gaps, the end of the file. */
bool flw_scribe_end(struct flw_scribe *scribe, uint64_t lost_count);

/* So far: the events that there were, and how many of them are missing in the file. */
struct flw_scribe_tally {
    uint64_t event_count, missing_count;
};
struct flw_scribe_tally flw_scribe_count(const struct flw_scribe *scribe);

/* One line; NULL: nothing has gone wrong. */
const char *flw_scribe_problem(const struct flw_scribe *scribe);

/* Closes the file. True: the system took all that was written. NULL is allowed. */
bool flw_scribe_close(struct flw_scribe *scribe);

/* In the child of a fork: the file is the parent's. */
void flw_scribe_disown(struct flw_scribe *scribe);

#endif
