/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the numbers of a recording's streams and names: from 0, only added to.
 *
 * Synchronization: the lock inside, the highest of all ranks; held for one lookup, and over host
 * memory for a new entry. */
#ifndef FLW_RECORD_NAMES_H
#define FLW_RECORD_NAMES_H

#include "base/lock.h"
#include "record/addressmap.h"
#include "record/ftracewriter.h"

struct flw_names {
    struct flw_lock lock; /* FLW_RANK_RECORD */
    struct flw_addressmap streams;
    uint64_t *handles;
    size_t stream_count, stream_room;
    char **names;
    size_t name_count, name_room;
};

void flw_names_init(struct flw_names *names);
void flw_names_finish(struct flw_names *names);

/* Return a stream's number. Streams beyond FLW_RING_STREAMS, and those without memory, share the
 * last number. */
uint32_t flw_names_stream(struct flw_names *names, uint64_t handle);

/* Return a name's number. False: no memory. */
bool flw_names_name(struct flw_names *names, const char *name, uint32_t *out);

/* Write the entries that a file does not have yet; the counts are the file's. False: the writer
 * failed, or no memory. */
bool flw_names_write(struct flw_names *names, struct flw_ftrace_writer *writer,
                     size_t *stream_count, size_t *name_count);

#endif
