/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the records of several threads in the order of their ticks.
 */
#ifndef FLW_RECORD_MERGE_H
#define FLW_RECORD_MERGE_H

#include "record/ring.h"

/* Records `at` to `end` - 1 of one thread. `words` is the ring's memory or a copy of it. */
struct flw_merge_run {
    const uint64_t *words;
    uint64_t mask, at, end;
    uint64_t ticks; /* of record `at`; never decreases */
    uint32_t thread;
    uint32_t stack;        /* as of the last record taken */
    uint64_t released;     /* records up to it are returned to the owner */
    struct flw_ring *ring; /* the tail follows `at`; NULL: it does not */
};

/* Runs without records left have ticks UINT64_MAX. */
struct flw_merge {
    struct flw_merge_run *runs;
    size_t count, current;
    uint64_t limit;       /* ticks up to which the current run is first */
    uint64_t until_ticks; /* later records are not taken */
};

/* A record taken out. */
struct flw_merge_record {
    uint64_t ticks, address, size_bytes;
    uint32_t stream, tag, pool, thread;
    uint32_t stack; /* of the call; 0: unknown */
    enum flw_trace_op op;
};

/* Skip earlier records. Call before flw_merge_begin. */
void flw_merge_skip(struct flw_merge *merge, uint64_t ticks);

/* Call before the first flw_merge_next, once runs, count and until_ticks are set. */
void flw_merge_begin(struct flw_merge *merge);

/* Take the next record; false: none left. Of records with equal ticks those of the earlier run are
 * first, unless the later run is being read. */
bool flw_merge_next(struct flw_merge *merge, struct flw_merge_record *out);

/* Return the taken records to the rings' owners as room. */
void flw_merge_release(struct flw_merge *merge);

#endif
