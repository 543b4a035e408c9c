/* SPDX-License-Identifier: Apache-2.0 */
#include "report/facts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "report/heapview.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* Owners of one kind while their categories are made. */
struct owners {
    struct flw_sheet *sheet;
    enum flw_sheet_kind kind;
    uint32_t *keys;   /* by block: the owner's number, from 0 */
    uint32_t *values; /* by owner: the tag or pool; NULL: the owner's number */
    size_t count;     /* of owners */
    const struct flw_owners *code;
    uint8_t *places; /* by owner: the category, then the band */
};

/* ---- the owner of a block ---- */

static uint32_t context_value(const struct flw_trace_context *context, enum flw_sheet_kind kind)
{
    return kind == FLW_SHEET_BY_TAG ? context->tag : context->pool;
}

/* List the distinct values in ascending order, always with 0. */
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

void flw_facts_own_blocks(const struct flw_trace *trace, const struct flw_owners *code,
                          uint32_t *out_owners)
{
    memcpy(out_owners, code->of_record, trace->initial_count * sizeof *out_owners);
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_ALLOC) {
            out_owners[trace->events[i].block] = code->of_record[trace->initial_count + i];
        }
    }
}

static void key_blocks(struct owners *owners)
{
    const struct flw_trace *trace = owners->sheet->trace;
    if (owners->kind == FLW_SHEET_BY_OWNER) {
        if (owners->code->has_code) {
            owners->count = owners->code->count;
            flw_facts_own_blocks(trace, owners->code, owners->keys);
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

/* Return the code that requested most of the blocks with this key, or FLW_OWNER_UNKNOWN. */
static uint32_t main_code(const struct owners *owners, uint32_t key)
{
    const struct flw_trace *trace = owners->sheet->trace;
    uint32_t *of_block = flw_host_alloc(trace->block_count, sizeof *of_block),
             main = FLW_OWNER_UNKNOWN;
    uint64_t *bytes = flw_host_alloc(owners->code->count, sizeof *bytes);
    flw_facts_own_blocks(trace, owners->code, of_block);
    for (size_t i = 0; i < trace->block_count; i++) {
        bytes[of_block[i]] += owners->keys[i] == key ? trace->blocks[i].size_bytes : 0;
        main = bytes[of_block[i]] > bytes[main] ? of_block[i] : main;
    }
    flw_host_free(of_block);
    flw_host_free(bytes);
    return main;
}

static void name_pool(const struct owners *owners, uint32_t key, uint32_t pool, char *out)
{
    uint32_t code = owners->code->has_code ? main_code(owners, key) : FLW_OWNER_UNKNOWN;
    bool is_known = code != FLW_OWNER_UNKNOWN;
    snprintf(out, FLW_SHEET_NAME_BYTES, "pool %" PRIu32 "%s%s", pool, is_known ? ": " : "",
             is_known ? flw_owners_short_name(owners->code, code) : "");
}

static void name_owner(const struct owners *owners, uint32_t key, char *out)
{
    const struct flw_trace *trace = owners->sheet->trace;
    uint32_t value = owners->values == NULL ? key : owners->values[key];
    switch (owners->kind) {
    case FLW_SHEET_BY_OWNER:
        flw_owners_cut_name(owners->code, key, out);
        break;
    case FLW_SHEET_BY_STREAM:
        snprintf(out, FLW_SHEET_NAME_BYTES, "stream %" PRIu64,
                 key < trace->stream_count ? trace->streams[key] : key);
        break;
    case FLW_SHEET_BY_SIZE:
        flw_owners_name_size(out, key);
        break;
    case FLW_SHEET_BY_TAG:
        snprintf(out, FLW_SHEET_NAME_BYTES, value == 0 ? "no tag" : "tag %" PRIu32, value);
        break;
    default:
        if (value == 0) {
            snprintf(out, FLW_SHEET_NAME_BYTES, "common pool");
        } else {
            name_pool(owners, key, value, out);
        }
        break;
    }
}

/* ---- the walks ---- */

/* Give the `most` owners with the highest scores places in that order, and all others the next place. Fill `out` with
 * the owners by place; return how many have a place of their own. */
static size_t choose_places(struct owners *owners, const uint64_t *scores, size_t most, size_t *out)
{
    size_t count = 0;
    memset(owners->places, UINT8_MAX, owners->count);
    for (; count < most; count++) {
        size_t best = owners->count;
        for (size_t i = 0; i < owners->count; i++) {
            if (owners->places[i] == UINT8_MAX && scores[i] != 0 &&
                (best == owners->count || scores[i] > scores[best])) {
                best = i;
            }
        }
        if (best == owners->count) {
            break;
        }
        owners->places[best] = (uint8_t)count;
        out[count] = best;
    }
    for (size_t i = 0; i < owners->count; i++) {
        owners->places[i] = (uint8_t)flw_min(owners->places[i], count);
    }
    return count;
}

static bool has_rest(const struct owners *owners, size_t place)
{
    const struct flw_trace *trace = owners->sheet->trace;
    bool is_there = false;
    for (size_t i = 0; i < trace->block_count && !is_there; i++) {
        is_there = owners->places[owners->keys[i]] == place && trace->blocks[i].size_bytes != 0;
    }
    return is_there;
}

/* Fill the categories with the largest owners at the peak. */
static void fill_categories(struct owners *owners, uint64_t *live_bytes, uint64_t *live_counts)
{
    struct flw_sheet *sheet = owners->sheet;
    struct flw_sheet_category *categories = sheet->categories[owners->kind];
    size_t shown[FLW_SHEET_CATEGORIES];
    flw_sheet_tally(sheet, FLW_SHEET_AT_PEAK, owners->keys, live_bytes, live_counts);
    size_t count = choose_places(owners, live_bytes, FLW_SHEET_CATEGORIES - 1, shown);
    for (size_t i = 0; i < owners->count; i++) {
        struct flw_sheet_category *category = &categories[owners->places[i]];
        category->at_peak_bytes += live_bytes[i];
        category->at_peak_count += live_counts[i];
    }
    for (size_t i = 0; i < count; i++) {
        name_owner(owners, (uint32_t)shown[i], categories[i].name);
    }
    if (has_rest(owners, count)) {
        snprintf(categories[count++].name, FLW_SHEET_NAME_BYTES, "other");
    }
    sheet->category_count[owners->kind] = count;
}

/* Find the most that each owner holds at any time. */
static void find_most(const struct owners *owners, uint64_t *live_bytes, uint64_t *most_bytes)
{
    const struct flw_program *program = owners->sheet->program;
    memset(live_bytes, 0, owners->count * sizeof *live_bytes);
    memset(most_bytes, 0, owners->count * sizeof *most_bytes);
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            uint32_t owner = owners->keys[op->block];
            live_bytes[owner] += op->size_bytes;
            most_bytes[owner] = flw_max(most_bytes[owner], live_bytes[owner]);
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            live_bytes[owners->keys[op->block]] -= op->size_bytes;
        }
    }
}

static void hold(struct flw_sheet_band *bands, size_t count, size_t column,
                 const uint64_t *live_bytes)
{
    for (size_t b = 0; b < count; b++) {
        bands[b].held_bytes[column] = live_bytes[b];
    }
}

/* Fill the bands' series. A column holds the moment with the largest sum: separate maxima would add up to more than was
 * ever live. */
static void fill_series(struct owners *owners)
{
    struct flw_sheet *sheet = owners->sheet;
    const struct flw_program *program = sheet->program;
    struct flw_sheet_band *bands = sheet->bands[owners->kind];
    size_t count = sheet->band_count[owners->kind];
    uint64_t live_bytes[FLW_SHEET_BANDS] = {0};
    uint64_t sum_bytes = 0;
    uint64_t most_bytes = 0; /* largest sum in this column */
    size_t column = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (i == sheet->columns.first_op[column + 1]) {
            hold(bands, count, ++column, live_bytes);
            most_bytes = sum_bytes;
        }
        if (op->kind == FLW_OP_ALLOC) {
            live_bytes[owners->places[owners->keys[op->block]]] += op->size_bytes;
            sum_bytes += op->size_bytes;
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            live_bytes[owners->places[owners->keys[op->block]]] -= op->size_bytes;
            sum_bytes -= op->size_bytes;
        }
        if (sum_bytes > most_bytes) {
            hold(bands, count, column, live_bytes);
            most_bytes = sum_bytes;
        }
    }
}

/* Choose as bands the owners with the highest maxima, so that no large owner is part of the rest. */
static void fill_bands(struct owners *owners, uint64_t *live_bytes, uint64_t *most_bytes)
{
    struct flw_sheet *sheet = owners->sheet;
    struct flw_sheet_band *bands = sheet->bands[owners->kind];
    size_t shown[FLW_SHEET_BANDS];
    find_most(owners, live_bytes, most_bytes);
    size_t count = choose_places(owners, most_bytes, FLW_SHEET_BANDS - 1, shown);
    for (size_t i = 0; i < owners->count; i++) {
        struct flw_sheet_band *band = &bands[owners->places[i]];
        band->most_bytes = flw_max(band->most_bytes, most_bytes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        name_owner(owners, (uint32_t)shown[i], bands[i].name);
    }
    if (has_rest(owners, count)) {
        snprintf(bands[count++].name, FLW_SHEET_NAME_BYTES, "other");
    }
    for (size_t i = 0; i < count; i++) {
        bands[i].held_bytes = flw_host_alloc(sheet->columns.count, sizeof *bands[i].held_bytes);
    }
    sheet->band_count[owners->kind] = count;
    fill_series(owners);
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

/* List the sizes of a category's blocks, or the lives of its freed blocks, sorted. Returns their number; `out` has room
 * for one per block. */
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
    uint64_t *live_bytes = flw_host_alloc(owners->count, sizeof *live_bytes);
    uint64_t *others = flw_host_alloc(owners->count, sizeof *others); /* counts, then most bytes */
    owners->places = flw_host_alloc(owners->count, 1);
    fill_categories(owners, live_bytes, others);
    fill_spreads(owners, facts);
    fill_bands(owners, live_bytes, others);
    flw_host_free(live_bytes);
    flw_host_free(others);
    flw_host_free(owners->places);
}

void flw_facts_gather_owners(struct flw_sheet *sheet, const struct flw_facts *facts,
                             const struct flw_owners *code)
{
    const struct flw_trace *trace = sheet->trace;
    uint32_t *keys = flw_host_alloc(trace->block_count, sizeof *keys);
    for (int kind = 0; kind < FLW_SHEET_KIND_COUNT; kind++) {
        struct owners owners = {
            .sheet = sheet, .kind = (enum flw_sheet_kind)kind, .keys = keys, .code = code};
        key_blocks(&owners);
        bool says_nothing = owners.count == 0 || (owners.values != NULL && owners.count < 2);
        if (!says_nothing && sheet->program->max_live_bytes != 0) {
            make_categories(&owners, facts);
        }
        flw_host_free(owners.values);
    }
    flw_host_free(keys);
}

/* ---- owners at a moment ---- */

/* Live blocks by owner at one moment. */
struct tally {
    struct flw_sheet *sheet;
    const struct flw_owners *code;
    uint32_t *keys;           /* by block: the owner */
    uint64_t *bytes, *counts; /* by owner */
    uint32_t *order;          /* room for one per owner */
};

static int compare_owners(const void *a, const void *b, void *context)
{
    const struct tally *tally = context;
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    if (tally->bytes[left] != tally->bytes[right]) {
        return tally->bytes[left] > tally->bytes[right] ? -1 : 1;
    }
    return left < right ? -1 : left > right;
}

/* Record the largest owners. tally->order then begins with the owners that have places. */
static void note_holding(struct tally *tally, enum flw_sheet_moment moment)
{
    struct flw_sheet_holding *holding = &tally->sheet->holdings[moment];
    size_t count = 0;
    memset(tally->bytes, 0, tally->code->count * sizeof *tally->bytes);
    memset(tally->counts, 0, tally->code->count * sizeof *tally->counts);
    flw_sheet_tally(tally->sheet, moment, tally->keys, tally->bytes, tally->counts);
    for (size_t i = 0; i < tally->code->count; i++) {
        if (tally->counts[i] != 0) {
            tally->order[count++] = (uint32_t)i;
        }
    }
    qsort_r(tally->order, count, sizeof *tally->order, compare_owners, tally);
    holding->owner_count = flw_min(count, FLW_SHEET_OWNERS);
    holding->owners = flw_host_alloc(holding->owner_count, sizeof *holding->owners);
    for (size_t i = 0; i < count; i++) {
        uint32_t key = tally->order[i];
        holding->bytes += tally->bytes[key];
        holding->count += tally->counts[key];
        if (i >= holding->owner_count) {
            holding->rest_bytes += tally->bytes[key];
            holding->rest_count += tally->counts[key];
            continue;
        }
        struct flw_sheet_owner *owner = &holding->owners[i];
        flw_owners_cut_name(tally->code, key, owner->name);
        owner->bytes = tally->bytes[key];
        owner->count = tally->counts[key];
    }
}

/* Return the length of the common part of step names: "ProfilerStep#" of "ProfilerStep#12". */
static size_t stem_bytes(const char *name)
{
    size_t bytes = strlen(name);
    while (bytes > 0 && isdigit((unsigned char)name[bytes - 1])) {
        bytes--;
    }
    return bytes;
}

static bool is_same_step(const struct flw_sheet_mark *a, const struct flw_sheet_mark *b)
{
    size_t bytes = stem_bytes(a->name);
    return bytes == stem_bytes(b->name) && memcmp(a->name, b->name, bytes) == 0;
}

/* List the ends of the steps: of the marks with "step" in their names, the most frequent kind, if there are at least
 * two of that kind. Returns their number; `ends` has room for one per mark. */
static size_t list_steps(const struct flw_sheet *sheet, uint64_t *ends)
{
    const struct flw_sheet_mark *marks = sheet->marks, *best = NULL;
    size_t most = 1;
    for (size_t i = 0; i < sheet->mark_count; i++) {
        size_t count = 0;
        size_t end = strcasestr(marks[i].name, "step") == NULL ? i : sheet->mark_count;
        for (size_t j = i; j < end; j++) {
            count += is_same_step(&marks[i], &marks[j]);
        }
        if (count > most) {
            most = count;
            best = &marks[i];
        }
    }
    size_t count = 0;
    for (size_t i = 0; best != NULL && i < sheet->mark_count; i++) {
        if (is_same_step(best, &marks[i])) {
            ends[count] = flw_max(marks[i].end_op, count == 0 ? 0 : ends[count - 1]);
            count++;
        }
    }
    return count;
}

static void add_stretch(struct flw_sheet *sheet, uint64_t end_op, const char *word, size_t first,
                        size_t last)
{
    struct flw_sheet_stretch *stretch = &sheet->stretches[sheet->stretch_count++];
    stretch->end_op = end_op;
    if (first == last) {
        snprintf(stretch->name, sizeof stretch->name, "%s %zu", word, first);
    } else {
        snprintf(stretch->name, sizeof stretch->name, "%ss %zu to %zu", word, first, last);
    }
}

/* Cut the recording into comparable stretches: all but the last have equally many steps. */
static void cut_stretches(struct flw_sheet *sheet)
{
    uint64_t *ends = flw_host_alloc(sheet->mark_count, sizeof *ends);
    size_t count = list_steps(sheet, ends);
    size_t each = (size_t)flw_div_up(count, FLW_SHEET_STRETCHES - 1);
    for (size_t i = 0; i < count; i += each) {
        size_t last = flw_min(i + each, count);
        add_stretch(sheet, ends[last - 1], "step", i + 1, last);
    }
    if (count != 0 && ends[count - 1] < sheet->op_count) {
        add_stretch(sheet, sheet->op_count, "after step", count, count);
    }
    uint64_t begin_op = sheet->initial_op_count;
    for (size_t i = 0; count == 0 && i < FLW_SHEET_STRETCHES; i++) {
        uint64_t end_op = begin_op + (sheet->op_count - begin_op) * (i + 1) / FLW_SHEET_STRETCHES;
        add_stretch(sheet, end_op, "tenth", i + 1, i + 1);
    }
    flw_host_free(ends);
}

static bool is_survivor(const struct flw_sheet *sheet, const struct flw_facts *facts,
                        const struct flw_op *op)
{
    return op->kind == FLW_OP_ALLOC && op->block >= sheet->trace->initial_count &&
           facts->end_ops[op->block] == sheet->op_count;
}

/* Add up the survivors by owner and stretch; the owners are in the order of tally->order. */
static void fill_left(struct tally *tally, const struct flw_facts *facts)
{
    struct flw_sheet *sheet = tally->sheet;
    struct flw_sheet_holding *holding = &sheet->holdings[FLW_SHEET_SURVIVORS];
    uint32_t *places = flw_host_alloc(tally->code->count, sizeof *places);
    size_t stretch = 0;
    memset(places, 0xFF, tally->code->count * sizeof *places);
    for (size_t i = 0; i < holding->owner_count; i++) {
        places[tally->order[i]] = (uint32_t)i;
    }
    holding->left = flw_host_alloc(holding->owner_count, sizeof *holding->left);
    for (size_t i = 0; i < sheet->program->op_count; i++) {
        const struct flw_op *op = &sheet->program->ops[i];
        while (i >= sheet->stretches[stretch].end_op) {
            stretch++;
        }
        if (!is_survivor(sheet, facts, op)) {
            continue;
        }
        uint32_t place = places[tally->keys[op->block]];
        sheet->stretches[stretch].left_bytes += op->size_bytes;
        sheet->stretches[stretch].left_count++;
        if (place != UINT32_MAX) {
            holding->left[place].bytes[stretch] += op->size_bytes;
            holding->left[place].counts[stretch]++;
        }
    }
    flw_host_free(places);
}

void flw_facts_gather_holdings(struct flw_sheet *sheet, const struct flw_facts *facts,
                               const struct flw_owners *code)
{
    struct tally tally = {
        .sheet = sheet,
        .code = code,
        .keys = flw_host_alloc(sheet->trace->block_count, sizeof *tally.keys),
        .bytes = flw_host_alloc(code->count, sizeof *tally.bytes),
        .counts = flw_host_alloc(code->count, sizeof *tally.counts),
        .order = flw_host_alloc(code->count, sizeof *tally.order),
    };
    flw_facts_own_blocks(sheet->trace, code, tally.keys);
    cut_stretches(sheet);
    note_holding(&tally, FLW_SHEET_AT_PEAK);
    if (sheet->oom.count != 0) {
        note_holding(&tally, FLW_SHEET_AT_OOM);
    }
    note_holding(&tally, FLW_SHEET_AT_END);
    note_holding(&tally, FLW_SHEET_SURVIVORS);
    fill_left(&tally, facts);
    flw_host_free(tally.keys);
    flw_host_free(tally.bytes);
    flw_host_free(tally.counts);
    flw_host_free(tally.order);
}
