/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the annotations of a snapshot (begins and ends of phases, each with a time), their places among the snapshot's
 * events, and rows in which phases, which may overlap, are nested.
 * Does not: read annotations.
 *
 * Annotations and events are recorded separately, and either may begin earlier. Phases that ended before the first
 * event are left out; phases that were open then begin with that event. Within the same microsecond, a phase begins
 * before the events and ends after them.
 */
#ifndef FLW_TRACE_TRACE_PHASES_H
#define FLW_TRACE_TRACE_PHASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/trace.h"

#define FLW_PHASES_NO_ROW UINT32_MAX

struct flw_phase {
    uint64_t time_us;
    uint64_t number; /* order of adding; after flw_phases_sort, order in the result */
    uint32_t name;
    bool is_begin;
    uint32_t row;   /* of flw_phases_find_rows */
    size_t partner; /* the end of a begin, or the begin of an end; SIZE_MAX: not recorded */
    size_t outer;   /* of an open begin: the begin that is open again after it; SIZE_MAX: none */
};

/* All zero is empty. */
struct flw_phases {
    struct flw_phase *at;
    size_t count, room;
    size_t next;          /* of flw_phases_due */
    uint64_t early_count; /* left out: ended before the first event */
    uint32_t row_count;
};

/* Add an annotation. Returns false if memory runs out. */
bool flw_phases_add(struct flw_phases *phases, uint64_t time_us, uint32_t name, bool is_begin);

/* Order all annotations for events that begin at `first_us`. An end without a begin gets one at first_us. Call after
 * the last flw_phases_add. Returns false if memory runs out. */
bool flw_phases_sort(struct flw_phases *phases, uint64_t first_us);

/* Return the next annotation before an event at `time_us` (UINT64_MAX: at the end), or NULL. */
const struct flw_phase *flw_phases_due(struct flw_phases *phases, uint64_t time_us);

void flw_phases_finish(struct flw_phases *phases);

/* List the begins and ends of a trace's phases in order, with rows such that in each row a phase ends before the phase
 * around it. FLW_PHASES_NO_ROW: an end without a begin. Returns false if memory runs out: nothing is held. O(phases x
 * log phases). */
bool flw_phases_find_rows(const struct flw_trace *trace, struct flw_phases *out);

#endif
