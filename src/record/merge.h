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
    uint64_t ticks; /* of record `at`; never falls */
    uint32_t thread;
    uint32_t stack;        /* as of what was taken */
    uint64_t released;     /* records up to it are the owner's again */
    struct flw_ring *ring; /* its tail follows `at`; NULL: it does not */
};

/* Runs with nothing left have ticks UINT64_MAX. */
struct flw_merge {
    struct flw_merge_run *runs;
    size_t count, current;
    uint64_t limit;       /* ticks up to which the current run comes first */
    uint64_t until_ticks; /* records after it are not taken */
};

/* A record as it is taken out. */
struct flw_merge_record {
    uint64_t ticks, address, size_bytes;
    uint32_t stream, tag, pool, thread;
    uint32_t stack; /* that it was put in; 0: not known */
    enum flw_trace_op op;
};

/* Pass over what is earlier. Before flw_merge_begin. */
void flw_merge_skip(struct flw_merge *merge, uint64_t ticks);

/* Before the first flw_merge_next, once runs, count and until_ticks are set. */
void flw_merge_begin(struct flw_merge *merge);

/* False: there is none left. Of records with equal ticks those of the earlier run come first, unless
 * the later one is being read. */
bool flw_merge_next(struct flw_merge *merge, struct flw_merge_record *out);

/* Give what was taken back to the rings' owners as room. */
void flw_merge_release(struct flw_merge *merge);

#endif
