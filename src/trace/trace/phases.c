/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: matching ends with begins, ordering both, and assigning rows.
 */
#include "trace/trace/phases.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "record/array.h"

bool flw_phases_add(struct flw_phases *phases, uint64_t time_us, uint32_t name, bool is_begin)
{
    struct flw_phase phase = {
        .time_us = time_us, .number = phases->count, .name = name, .is_begin = is_begin};
    return FLW_ARRAY_ADD(phases->at, phases->count, phases->room, phase);
}

static int compare_phases(const void *a, const void *b)
{
    const struct flw_phase *x = a, *y = b;
    int order = flw_compare_u64(&x->time_us, &y->time_us);
    return order != 0 ? order : flw_compare_u64(&x->number, &y->number);
}

/* Find the partners: an end closes the latest open begin of the same name. */
static bool match(struct flw_phases *phases)
{
    uint32_t name_count = 0;
    for (size_t i = 0; i < phases->count; i++) {
        name_count = flw_max(name_count, phases->at[i].name + 1);
    }
    size_t *open = malloc((name_count + (size_t)1) * sizeof *open); /* by name: the latest begin */
    if (open == NULL) {
        return false;
    }
    memset(open, 0xFF, name_count * sizeof *open);
    for (size_t i = 0; i < phases->count; i++) {
        struct flw_phase *phase = &phases->at[i];
        size_t *latest = &open[phase->name];
        phase->partner = phase->is_begin ? SIZE_MAX : *latest;
        if (phase->is_begin) {
            phase->outer = *latest;
            *latest = i;
        } else if (*latest != SIZE_MAX) {
            phases->at[*latest].partner = i;
            *latest = phases->at[*latest].outer;
        }
    }
    free(open);
    return true;
}

/* Handle phases that began before the first event: drop those that ended, and begin the others with that event. */
static bool take_early(struct flw_phases *out, struct flw_phases *phases, uint64_t first_us)
{
    bool has_memory = true;
    for (size_t i = phases->count; has_memory && i-- > 0;) {
        /* The begin is lost, so the phase was outermost; of several, the last to end is first. */
        const struct flw_phase *end = &phases->at[i];
        if (!end->is_begin && end->partner == SIZE_MAX && end->time_us >= first_us) {
            has_memory = flw_phases_add(out, first_us, end->name, true);
        }
    }
    for (size_t i = 0; has_memory && i < phases->count; i++) {
        const struct flw_phase *phase = &phases->at[i];
        if (phase->time_us >= first_us) {
            has_memory = flw_phases_add(out, phase->time_us, phase->name, phase->is_begin);
        } else if (phase->is_begin &&
                   (phase->partner == SIZE_MAX || phases->at[phase->partner].time_us >= first_us)) {
            has_memory = flw_phases_add(out, first_us, phase->name, true);
        } else {
            phases->early_count++;
        }
    }
    return has_memory;
}

bool flw_phases_sort(struct flw_phases *phases, uint64_t first_us)
{
    struct flw_phases out = {0};
    if (phases->count == 0) {
        return true;
    }
    qsort(phases->at, phases->count, sizeof(*phases->at), compare_phases);
    bool has_memory = match(phases) && take_early(&out, phases, first_us);
    if (!has_memory) {
        flw_phases_finish(&out);
        return false;
    }
    out.early_count = phases->early_count;
    flw_phases_finish(phases);
    *phases = out;
    return true;
}

const struct flw_phase *flw_phases_due(struct flw_phases *phases, uint64_t time_us)
{
    if (phases->next == phases->count) {
        return NULL;
    }
    const struct flw_phase *phase = &phases->at[phases->next];
    bool is_due = phase->is_begin ? phase->time_us <= time_us : phase->time_us < time_us;
    if (!is_due && time_us != UINT64_MAX) {
        return NULL;
    }
    phases->next++;
    return phase;
}

/* ---- rows ---- */

static bool add_all(struct flw_phases *phases, const struct flw_trace *trace)
{
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < trace->detail_count; i++) {
        const struct flw_trace_detail *detail = &trace->details[i];
        const struct flw_trace_event *event = &trace->events[detail->event];
        if (event->op == FLW_TRACE_PHASE_BEGIN || event->op == FLW_TRACE_PHASE_END) {
            has_memory = flw_phases_add(phases, event->time_ns, detail->name,
                                        event->op == FLW_TRACE_PHASE_BEGIN);
        }
    }
    return has_memory;
}

/* A tree with rows as leaves, a power of two; `ends` has the root at 1 and the children of node i at 2 i and 2 i +
 * 1. */
struct rows {
    size_t count;
    size_t *innermost; /* of each row: the innermost open begin */
    size_t *
        ends; /* of each row: the end; SIZE_MAX: none open, or no end. Of a node: the latest end below */
};

static bool begin_rows(struct rows *rows, size_t phase_count)
{
    rows->count = 1;
    while (rows->count < phase_count) {
        rows->count *= 2;
    }
    rows->innermost = malloc(3 * rows->count * sizeof(*rows->innermost));
    if (rows->innermost == NULL) {
        return false;
    }
    rows->ends = rows->innermost + rows->count;
    memset(rows->innermost, 0xFF, 3 * rows->count * sizeof(*rows->innermost));
    return true;
}

/* Find the first row that is empty or has an open phase that ends later. A phase without an end ends after all
 * others. */
static uint32_t find_row(const struct rows *rows, size_t end)
{
    size_t node = 1;
    while (node < rows->count) {
        node = 2 * node + (rows->ends[2 * node] < end);
    }
    return (uint32_t)(node - rows->count);
}

static void set_innermost(struct rows *rows, uint32_t row, size_t begin, size_t end)
{
    size_t node = rows->count + row;
    rows->innermost[row] = begin;
    rows->ends[node] = end;
    while ((node /= 2) > 0) {
        size_t left = rows->ends[2 * node];
        size_t right = rows->ends[2 * node + 1];
        rows->ends[node] = left > right ? left : right;
    }
}

static void fill_rows(struct flw_phases *phases, struct rows *rows)
{
    for (size_t i = 0; i < phases->count; i++) {
        struct flw_phase *phase = &phases->at[i];
        if (phase->is_begin) {
            phase->row = find_row(rows, phase->partner);
            phase->outer = rows->innermost[phase->row];
            set_innermost(rows, phase->row, i, phase->partner);
            phases->row_count = flw_max(phases->row_count, phase->row + 1);
        } else if (phase->partner == SIZE_MAX) {
            phase->row = FLW_PHASES_NO_ROW;
        } else {
            size_t begin = phases->at[phase->partner].outer;
            phase->row = phases->at[phase->partner].row;
            set_innermost(rows, phase->row, begin,
                          begin == SIZE_MAX ? SIZE_MAX : phases->at[begin].partner);
        }
    }
}

bool flw_phases_find_rows(const struct flw_trace *trace, struct flw_phases *out)
{
    struct rows rows = {0};
    *out = (struct flw_phases){0};
    bool has_memory = add_all(out, trace) && match(out) && begin_rows(&rows, out->count);
    if (has_memory) {
        fill_rows(out, &rows);
    } else {
        flw_phases_finish(out);
    }
    free(rows.innermost);
    return has_memory;
}

void flw_phases_finish(struct flw_phases *phases)
{
    free(phases->at);
    *phases = (struct flw_phases){0};
}
