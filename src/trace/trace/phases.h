/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the annotations of a snapshot (a phase begins, a phase ends, each at its time) and where they
 * go among its events; and the rows in which phases, which may overlap, lie within one another.
 * Does not: read them.
 *
 * Annotations and events are recorded apart and either may begin earlier. What was over when the
 * events begin is left out; what was under way begins with them. Of one microsecond, a phase begins
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
    size_t number; /* in the order given; then in that of the result */
    uint32_t name;
    bool is_begin;
};

/* All zero is none. */
struct flw_phases {
    struct flw_phase *at;
    size_t count, room;
    size_t next;          /* of flw_phases_due */
    uint64_t early_count; /* left out: over before the events began */
};

/* False: no memory. */
bool flw_phases_add(struct flw_phases *phases, uint64_t time_us, uint32_t name, bool is_begin);

/* All are added: put them in order, for events that begin at `first_us`. An end whose begin is not on
 * record gets one at first_us. False: no memory. */
bool flw_phases_settle(struct flw_phases *phases, uint64_t first_us);

/* The next one that goes before an event at `time_us` (UINT64_MAX: at the end); NULL where none does. */
const struct flw_phase *flw_phases_due(struct flw_phases *phases, uint64_t time_us);

void flw_phases_finish(struct flw_phases *phases);

struct flw_phase_rows {
    uint32_t *
        of_event; /* of each begin and end of a phase in a trace, in its order; the caller's to free */
    uint32_t count; /* of rows that have a phase */
};

/* In a row a phase is over before what it began in. FLW_PHASES_NO_ROW: an end that has no begin. False: no memory.
 * O(phases x log phases). */
bool flw_phases_find_rows(const struct flw_trace *trace, struct flw_phase_rows *out);

#endif
