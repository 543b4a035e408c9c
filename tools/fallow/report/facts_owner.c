/* SPDX-License-Identifier: Apache-2.0 */
#include "report/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/compare.h"
#include "report/heapview.h"
#include "report/owner.h"
#include "trace/trace.h"

#include "common/tool_host.h"

#define OTHER (FLW_SHEET_CATEGORIES - 1) /* the place of the rest */

/* One way to tell owners apart while its categories are made. */
struct owners {
    struct flw_sheet *sheet;
    enum flw_sheet_kind kind;
    uint32_t *keys;   /* by block: its owner, counted from 0 */
    uint32_t *values; /* by owner: the tag or pool that it stands for; NULL: itself */
    size_t count;     /* of owners */
    struct flw_owners
        code; /* by owner: of the program's code, then the size classes of what is older */
    uint64_t *live_bytes, *live_counts; /* by owner */
    uint8_t *places;                    /* by owner: its category */
};

/* ---- who owns a block ---- */

static uint32_t context_value(const struct flw_trace_context *context, enum flw_sheet_kind kind)
{
    return kind == FLW_SHEET_BY_TAG ? context->tag : context->pool;
}

/* The distinct values, ascending; 0 is always one. */
static void list_values(struct owners *owners)
{
    const struct flw_trace *trace = owners->sheet->trace;
    owners->values = flw_host_alloc(trace->context_count + 1, sizeof *owners->values);
    for (size_t i = 0; i < trace->context_count; i++) {
        owners->values[i + 1] = context_value(&trace->contexts[i], owners->kind);
    }
    qsort(owners->values, trace->context_count + 1, sizeof *owners->values, flw_compare_u32);
    for (size_t i = 0; i <= trace->context_count; i++) {
        if (i == 0 || owners->values[i] != owners->values[owners->count - 1]) {
            owners->values[owners->count++] = owners->values[i];
        }
    }
}

static uint32_t find_value(const struct owners *owners, uint32_t value)
{
    size_t low = 0;
    size_t high = owners->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (owners->values[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

static void key_by_context(struct owners *owners)
{
    const struct flw_trace *trace = owners->sheet->trace;
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        const struct flw_trace_context *context = flw_trace_walk_context(trace, &walk, i);
        size_t event = i - trace->initial_count;
        if (i < trace->initial_count) {
            owners->keys[i] = find_value(owners, context_value(context, owners->kind));
        } else if (trace->events[event].op == FLW_TRACE_ALLOC) {
            owners->keys[trace->events[event].block] =
                find_value(owners, context_value(context, owners->kind));
        }
    }
}

/* What is older than the recording and says nothing of itself is told by its size. */
static uint32_t owner_of(const struct owners *owners, size_t record, uint64_t size_bytes)
{
    const struct flw_trace *trace = owners->sheet->trace;
    uint32_t stack = flw_trace_stack(trace, record);
    bool is_older = stack == 0 && record < trace->initial_count;
    return is_older ? (uint32_t)(owners->code.count + flw_sheet_size_bin(size_bytes))
                    : owners->code.of_stack[stack];
}

static void key_by_owner(struct owners *owners)
{
    const struct flw_trace *trace = owners->sheet->trace;
    flw_owners_find(&owners->code, &trace->stacks);
    owners->count = owners->code.count + FLW_SHEET_SIZE_BINS;
    for (size_t i = 0; i < trace->initial_count; i++) {
        owners->keys[i] = owner_of(owners, i, trace->blocks[i].size_bytes);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            owners->keys[event->block] =
                owner_of(owners, trace->initial_count + i, event->size_bytes);
        }
    }
}

static void key_blocks(struct owners *owners)
{
    const struct flw_trace *trace = owners->sheet->trace;
    if (owners->kind == FLW_SHEET_BY_OWNER) {
        if (trace->stacks.stack_count != 0) {
            key_by_owner(owners);
        }
        return;
    }
    if (owners->kind == FLW_SHEET_BY_TAG || owners->kind == FLW_SHEET_BY_POOL) {
        list_values(owners);
        if (owners->count > 1) {
            key_by_context(owners);
        }
        return;
    }
    bool is_by_size = owners->kind == FLW_SHEET_BY_SIZE;
    owners->count = is_by_size ? FLW_SHEET_SIZE_BINS : owners->sheet->program->stream_count;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        owners->keys[i] =
            is_by_size ? (uint32_t)flw_sheet_size_bin(block->size_bytes) : block->stream;
    }
}

/* "up to 2 MiB" */
static void name_size(char *out, size_t bin)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    snprintf(out, FLW_SHEET_NAME_BYTES, "up to %u %s", 1u << bin % 10, units[bin / 10]);
}

static void name_owner(const struct owners *owners, uint32_t key, char *out)
{
    const struct flw_trace *trace = owners->sheet->trace;
    uint32_t value = owners->values == NULL ? key : owners->values[key];
    switch (owners->kind) {
    case FLW_SHEET_BY_OWNER:
        if (key >= owners->code.count) {
            char size[FLW_SHEET_NAME_BYTES];
            name_size(size, key - owners->code.count);
            snprintf(out, FLW_SHEET_NAME_BYTES, "before the recording, %.40s", size);
        } else if (key == 0) {
            snprintf(out, FLW_SHEET_NAME_BYTES, "code that is not known");
        } else {
            flw_owners_name(&owners->code, key, out, FLW_SHEET_NAME_BYTES);
        }
        break;
    case FLW_SHEET_BY_STREAM:
        snprintf(out, FLW_SHEET_NAME_BYTES, "stream %" PRIu64,
                 key < trace->stream_count ? trace->streams[key] : key);
        break;
    case FLW_SHEET_BY_SIZE:
        name_size(out, key);
        break;
    case FLW_SHEET_BY_TAG:
        snprintf(out, FLW_SHEET_NAME_BYTES, value == 0 ? "no tag" : "tag %" PRIu32, value);
        break;
    default:
        snprintf(out, FLW_SHEET_NAME_BYTES, value == 0 ? "common pool" : "pool %" PRIu32, value);
        break;
    }
}

/* ---- the walks ---- */

static void step(struct owners *owners, const struct flw_op *op)
{
    bool is_alloc = op->kind == FLW_OP_ALLOC;
    if (!is_alloc && op->kind != FLW_OP_FREE && op->kind != FLW_OP_FREE_ELSEWHERE) {
        return;
    }
    uint32_t key = owners->keys[op->block];
    if (is_alloc) {
        owners->live_bytes[key] += op->size_bytes;
        owners->live_counts[key]++;
    } else {
        owners->live_bytes[key] -= op->size_bytes;
        owners->live_counts[key]--;
    }
}

/* The largest at the peak get places of their own, in that order; the rest one together. */
static void choose_places(struct owners *owners)
{
    struct flw_sheet *sheet = owners->sheet;
    struct flw_sheet_category *categories = sheet->categories[owners->kind];
    size_t *count = &sheet->category_count[owners->kind];
    bool has_rest = false;
    for (size_t i = 0; i < owners->count; i++) {
        owners->places[i] = OTHER;
    }
    while (*count < OTHER) {
        size_t best = owners->count;
        for (size_t i = 0; i < owners->count; i++) {
            if (owners->places[i] == OTHER && owners->live_bytes[i] != 0 &&
                (best == owners->count || owners->live_bytes[i] > owners->live_bytes[best])) {
                best = i;
            }
        }
        if (best == owners->count) {
            break;
        }
        owners->places[best] = (uint8_t)*count;
        categories[*count].at_peak_bytes = owners->live_bytes[best];
        categories[*count].at_peak_count = owners->live_counts[best];
        name_owner(owners, (uint32_t)best, categories[(*count)++].name);
    }
    for (size_t i = 0; i < sheet->trace->block_count && !has_rest; i++) {
        has_rest =
            owners->places[owners->keys[i]] == OTHER && sheet->trace->blocks[i].size_bytes != 0;
    }
    struct flw_sheet_category *other = &categories[*count];
    for (size_t i = 0; i < owners->count; i++) {
        if (owners->places[i] == OTHER) {
            owners->places[i] = (uint8_t)*count;
            other->at_peak_bytes += owners->live_bytes[i];
            other->at_peak_count += owners->live_counts[i];
        }
    }
    if (has_rest) {
        snprintf(other->name, sizeof other->name, "other");
        (*count)++;
    }
    for (size_t i = 0; i < *count; i++) {
        categories[i].high_bytes =
            flw_host_alloc(sheet->columns.count, sizeof *categories[i].high_bytes);
    }
}

static void fill_series(struct owners *owners)
{
    struct flw_sheet *sheet = owners->sheet;
    const struct flw_program *program = sheet->program;
    struct flw_sheet_category *categories = sheet->categories[owners->kind];
    size_t count = sheet->category_count[owners->kind];
    uint64_t live_bytes[FLW_SHEET_CATEGORIES] = {0};
    size_t column = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (i == sheet->columns.first_op[column + 1]) {
            column++;
            for (size_t c = 0; c < count; c++) {
                categories[c].high_bytes[column] = live_bytes[c];
            }
        }
        if (op->kind == FLW_OP_ALLOC) {
            size_t place = owners->places[owners->keys[op->block]];
            live_bytes[place] += op->size_bytes;
            categories[place].high_bytes[column] =
                flw_max(categories[place].high_bytes[column], live_bytes[place]);
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            live_bytes[owners->places[owners->keys[op->block]]] -= op->size_bytes;
        }
    }
}

static struct flw_sheet_spread spread_of(const uint64_t *sorted, size_t count)
{
    struct flw_sheet_spread spread = {.count = count};
    if (count != 0) {
        spread.p50 = sorted[(count - 1) / 2];
        spread.p90 = sorted[(count - 1) * 9 / 10];
        spread.p99 = sorted[(count - 1) * 99 / 100];
        spread.max = sorted[count - 1];
    }
    return spread;
}

/* Sizes of a category's blocks, or their lives where those have ended, sorted. Returns how many;
 * `out` is room, one a block. */
static size_t list_values_of(const struct owners *owners, const struct flw_facts *facts,
                             size_t place, bool wants_lives, uint64_t *out)
{
    const struct flw_program *program = owners->sheet->program;
    size_t count = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind != FLW_OP_ALLOC || owners->places[owners->keys[op->block]] != place) {
            continue;
        }
        uint64_t end_op = facts->end_ops[op->block];
        if (!wants_lives) {
            out[count++] = op->size_bytes;
        } else if (end_op != owners->sheet->op_count) {
            out[count++] = end_op - i;
        }
    }
    qsort(out, count, sizeof *out, flw_compare_u64);
    return count;
}

static void fill_spreads(const struct owners *owners, const struct flw_facts *facts)
{
    struct flw_sheet *sheet = owners->sheet;
    struct flw_sheet_category *categories = sheet->categories[owners->kind];
    uint64_t *room = flw_host_alloc(owners->sheet->program->block_count, sizeof *room);
    for (size_t c = 0; c < sheet->category_count[owners->kind]; c++) {
        size_t count = list_values_of(owners, facts, c, false, room);
        categories[c].sizes = spread_of(room, count);
        for (size_t i = 0; i < count; i++) {
            categories[c].requested_bytes += room[i];
        }
        count = list_values_of(owners, facts, c, true, room);
        categories[c].life_ops = spread_of(room, count);
    }
    flw_host_free(room);
}

static void make_categories(struct owners *owners, const struct flw_facts *facts)
{
    const struct flw_program *program = owners->sheet->program;
    owners->live_bytes = flw_host_alloc(owners->count, sizeof *owners->live_bytes);
    owners->live_counts = flw_host_alloc(owners->count, sizeof *owners->live_counts);
    owners->places = flw_host_alloc(owners->count, 1);
    for (size_t i = 0; i <= facts->peak_op; i++) {
        step(owners, &program->ops[i]);
    }
    choose_places(owners);
    fill_series(owners);
    fill_spreads(owners, facts);
    flw_host_free(owners->live_bytes);
    flw_host_free(owners->live_counts);
    flw_host_free(owners->places);
}

/* ---- the out-of-memory */

static void name_request(const struct flw_trace *trace, size_t event, char *out)
{
    struct flw_owners code;
    uint32_t stack = flw_trace_stack(trace, trace->initial_count + event);
    if (stack != 0) {
        flw_owners_find(&code, &trace->stacks);
        if (code.of_stack[stack] != 0) {
            flw_owners_name(&code, code.of_stack[stack], out, FLW_SHEET_NAME_BYTES);
        }
        flw_owners_finish(&code);
    }
}

static void note_oom(struct flw_sheet *sheet, size_t event, uint64_t live_bytes)
{
    const struct flw_trace *trace = sheet->trace;
    struct flw_trace_walk walk = {0};
    struct flw_sheet_oom *oom = &sheet->oom;
    if (oom->count++ > 0) {
        return;
    }
    const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, event);
    oom->event = event + 1;
    oom->asked_bytes = trace->events[event].size_bytes;
    oom->live_bytes = live_bytes;
    oom->free_bytes = detail == NULL ? FLW_UNKNOWN : detail->free_bytes;
    name_request(trace, event, oom->owner);
}

void flw_facts_gather_oom(struct flw_sheet *sheet)
{
    const struct flw_trace *trace = sheet->trace;
    uint64_t live_bytes = 0;
    for (size_t i = 0; i < trace->initial_count; i++) {
        live_bytes += trace->blocks[i].size_bytes;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            live_bytes += event->size_bytes;
        } else if (event->op == FLW_TRACE_FREE) {
            live_bytes -= event->size_bytes;
        } else if (event->op == FLW_TRACE_OOM) {
            note_oom(sheet, i, live_bytes);
        }
    }
}

void flw_facts_gather_owners(struct flw_sheet *sheet, const struct flw_facts *facts)
{
    const struct flw_trace *trace = sheet->trace;
    uint32_t *keys = flw_host_alloc(trace->block_count, sizeof *keys);
    for (int kind = 0; kind < FLW_SHEET_KIND_COUNT; kind++) {
        struct owners owners = {.sheet = sheet, .kind = (enum flw_sheet_kind)kind, .keys = keys};
        key_blocks(&owners);
        bool says_nothing = owners.count == 0 || (owners.values != NULL && owners.count < 2);
        if (!says_nothing && sheet->program->max_live_bytes != 0) {
            make_categories(&owners, facts);
        }
        flw_host_free(owners.values);
        flw_owners_finish(&owners.code);
    }
    flw_host_free(keys);
}
