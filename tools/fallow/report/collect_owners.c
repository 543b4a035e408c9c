/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the owners of an analysis: categories, bands, and the owners of memory at each moment.
 */
#include "report/collect.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "report/heapview.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tool_host.h"

/* The owners of one kind. */
struct group {
    struct flw_analysis *analysis;
    enum flw_analysis_kind kind;
    uint32_t *keys;           /* by block: the owner's number, from 0 */
    uint32_t *values;         /* by owner: the tag or pool; NULL: the owner's number */
    size_t count;             /* of owners */
    uint64_t *bytes, *counts; /* by owner: at a moment */
    uint32_t *order;          /* the owners with bytes, the largest first */
    size_t order_count;
    uint8_t *places; /* by owner: the category, the band, or the row of the moment */
};

/* ---- the owner of a block ---- */

static uint32_t context_value(const struct flw_trace_context *context, enum flw_analysis_kind kind)
{
    return kind == FLW_ANALYSIS_BY_TAG ? context->tag : context->pool;
}

/* List the distinct values in ascending order, always with 0. */
static void list_values(struct group *group)
{
    const struct flw_trace *trace = group->analysis->trace;
    group->values = flw_host_alloc(trace->context_count + 1, sizeof *group->values);
    for (size_t i = 0; i < trace->context_count; i++) {
        group->values[i + 1] = context_value(&trace->contexts[i], group->kind);
    }
    qsort(group->values, trace->context_count + 1, sizeof *group->values, flw_compare_u32);
    for (size_t i = 0; i <= trace->context_count; i++) {
        if (i == 0 || group->values[i] != group->values[group->count - 1]) {
            group->values[group->count++] = group->values[i];
        }
    }
}

static void key_by_context(struct group *group)
{
    const struct flw_trace *trace = group->analysis->trace;
    struct flw_trace_walk walk = {0};
    list_values(group);
    for (size_t i = 0; group->count > 1 && i < trace->initial_count + trace->event_count; i++) {
        const struct flw_trace_context *context = flw_trace_walk_context(trace, &walk, i);
        const struct flw_trace_event *event =
            i < trace->initial_count ? NULL : &trace->events[i - trace->initial_count];
        if (event == NULL || event->op == FLW_TRACE_ALLOC) {
            uint32_t value = context_value(context, group->kind);
            const uint32_t *found = bsearch(&value, group->values, group->count,
                                            sizeof *group->values, flw_compare_u32);
            group->keys[event == NULL ? i : event->block] = (uint32_t)(found - group->values);
        }
    }
}

static void key_blocks(struct group *group)
{
    const struct flw_trace *trace = group->analysis->trace;
    bool is_by_size = group->kind == FLW_ANALYSIS_BY_SIZE;
    if (group->kind == FLW_ANALYSIS_BY_OWNER) {
        group->count = group->analysis->owners->count;
        group->keys = group->analysis->owners->of_block;
        return;
    }
    if (group->kind == FLW_ANALYSIS_BY_TAG || group->kind == FLW_ANALYSIS_BY_POOL) {
        key_by_context(group);
        return;
    }
    group->count = is_by_size ? FLW_ANALYSIS_SIZE_BINS : group->analysis->program->stream_count;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        group->keys[i] =
            is_by_size ? (uint32_t)flw_analysis_size_bin(block->size_bytes) : block->stream;
    }
}

/* Return the code that requested most of the blocks with this key, or FLW_OWNER_UNKNOWN. */
static uint32_t main_code(const struct group *group, uint32_t key)
{
    const struct flw_trace *trace = group->analysis->trace;
    const uint32_t *of_block = group->analysis->owners->of_block;
    uint32_t main = FLW_OWNER_UNKNOWN;
    FLW_LOCAL uint64_t *bytes = flw_host_alloc(group->analysis->owners->count, sizeof *bytes);
    for (size_t i = 0; i < trace->block_count; i++) {
        bytes[of_block[i]] += group->keys[i] == key ? trace->blocks[i].size_bytes : 0;
        main = bytes[of_block[i]] > bytes[main] ? of_block[i] : main;
    }
    return main;
}

static void name_pool(const struct group *group, uint32_t key, uint32_t pool, char *out)
{
    uint32_t code = group->analysis->owners->has_code ? main_code(group, key) : FLW_OWNER_UNKNOWN;
    bool is_known = code != FLW_OWNER_UNKNOWN;
    snprintf(out, FLW_ANALYSIS_NAME_BYTES, "pool %" PRIu32 "%s%s", pool, is_known ? ": " : "",
             is_known ? flw_owners_short_name(group->analysis->owners, code) : "");
}

static void name_owner(const struct group *group, uint32_t key, char *out)
{
    const struct flw_trace *trace = group->analysis->trace;
    uint32_t value = group->values == NULL ? key : group->values[key];
    switch (group->kind) {
    case FLW_ANALYSIS_BY_OWNER:
        flw_owners_cut_name(group->analysis->owners, key, out);
        break;
    case FLW_ANALYSIS_BY_STREAM:
        snprintf(out, FLW_ANALYSIS_NAME_BYTES, "stream %" PRIu64,
                 key < trace->stream_count ? trace->streams[key] : key);
        break;
    case FLW_ANALYSIS_BY_SIZE:
        snprintf(out, FLW_ANALYSIS_NAME_BYTES, "up to %s", FLW_SIZE(UINT64_C(1) << key));
        break;
    case FLW_ANALYSIS_BY_TAG:
        snprintf(out, FLW_ANALYSIS_NAME_BYTES, value == 0 ? "no tag" : "tag %" PRIu32, value);
        break;
    default:
        if (value == 0) {
            snprintf(out, FLW_ANALYSIS_NAME_BYTES, "common pool");
        } else {
            name_pool(group, key, value, out);
        }
        break;
    }
}

/* ---- the largest owners ---- */

static int compare_owners(const void *a, const void *b, void *context)
{
    const struct group *group = context;
    const uint32_t *left = a, *right = b;
    int order = flw_compare_u64(&group->bytes[*right], &group->bytes[*left]);
    return order != 0 ? order : flw_compare_u32(left, right);
}

/* Order the owners by bytes. The first `most` have places in that order, and all others the next place. Returns the
 * number of owners with a place of their own. */
static size_t rank(struct group *group, size_t most)
{
    group->order_count = 0;
    for (size_t i = 0; i < group->count; i++) {
        if (group->bytes[i] != 0) {
            group->order[group->order_count++] = (uint32_t)i;
        }
    }
    qsort_r(group->order, group->order_count, sizeof *group->order, compare_owners, group);
    size_t count = flw_min(group->order_count, most);
    memset(group->places, (int)count, group->count);
    for (size_t i = 0; i < count; i++) {
        group->places[group->order[i]] = (uint8_t)i;
    }
    return count;
}

static void tally(struct group *group, enum flw_analysis_moment moment)
{
    memset(group->bytes, 0, group->count * sizeof *group->bytes);
    memset(group->counts, 0, group->count * sizeof *group->counts);
    flw_analysis_tally(group->analysis, moment, group->keys, group->bytes, group->counts);
}

/* True if the block has ops and its owner has this place. */
static bool is_in(const struct group *group, size_t block, size_t place)
{
    return group->analysis->lives[block].begin_op != UINT64_MAX &&
           group->places[group->keys[block]] == place;
}

/* Rank the owners and name the first `most`, and "other" if there are more. Names are `bytes` apart. Returns the number
 * of names. */
static size_t name_places(struct group *group, size_t most, char *name, size_t bytes)
{
    size_t count = rank(group, most), block = 0;
    for (size_t i = 0; i < count; i++, name += bytes) {
        name_owner(group, group->order[i], name);
    }
    while (block < group->analysis->trace->block_count && !is_in(group, block, count)) {
        block++;
    }
    if (block < group->analysis->trace->block_count) {
        snprintf(name, FLW_ANALYSIS_NAME_BYTES, "other");
        count++;
    }
    return count;
}

/* ---- categories and bands ---- */

/* Sort the values and return their quantiles. */
static struct flw_analysis_spread spread_of(uint64_t *sorted, size_t count)
{
    struct flw_analysis_spread spread = {.count = count};
    qsort(sorted, count, sizeof *sorted, flw_compare_u64);
    if (count != 0) {
        spread.p50 = sorted[(count - 1) / 2];
        spread.p90 = sorted[(count - 1) * 9 / 10];
        spread.p99 = sorted[(count - 1) * 99 / 100];
        spread.max = sorted[count - 1];
    }
    return spread;
}

/* Add up the requests of a category, and find the quantiles of their sizes and lives. The rooms have an element per
 * block. */
static void fill_spreads(const struct group *group, size_t place, uint64_t *sizes, uint64_t *lives)
{
    const struct flw_analysis *analysis = group->analysis;
    struct flw_analysis_category *category = &group->analysis->categories[group->kind][place];
    size_t size_count = 0, life_count = 0;
    for (size_t i = 0; i < analysis->trace->block_count; i++) {
        const struct flw_life *life = &group->analysis->lives[i];
        if (is_in(group, i, place)) {
            sizes[size_count] = analysis->trace->blocks[i].size_bytes;
            category->requested_bytes += sizes[size_count++];
            lives[life_count] = life->end_op - life->begin_op;
            life_count += life->end_op != analysis->op_count;
        }
    }
    category->sizes = spread_of(sizes, size_count);
    category->life_ops = spread_of(lives, life_count);
}

/* Fill the categories with the largest owners at the peak. */
static void fill_categories(struct group *group)
{
    struct flw_analysis *analysis = group->analysis;
    struct flw_analysis_category *categories = analysis->categories[group->kind];
    size_t block_count = analysis->trace->block_count;
    FLW_LOCAL uint64_t *sizes = flw_host_alloc(block_count, sizeof *sizes);
    FLW_LOCAL uint64_t *lives = flw_host_alloc(block_count, sizeof *lives);
    tally(group, FLW_ANALYSIS_AT_PEAK);
    size_t count =
        name_places(group, FLW_ANALYSIS_CATEGORIES - 1, categories[0].name, sizeof *categories);
    for (size_t i = 0; i < group->count; i++) {
        categories[group->places[i]].at_peak_bytes += group->bytes[i];
        categories[group->places[i]].at_peak_count += group->counts[i];
    }
    for (size_t i = 0; i < count; i++) {
        fill_spreads(group, i, sizes, lives);
    }
    analysis->category_count[group->kind] = count;
}

/* Find the most bytes that each owner holds at any time. */
static void find_most(struct group *group)
{
    const struct flw_program *program = group->analysis->program;
    uint64_t *live_bytes = group->counts;
    memset(live_bytes, 0, group->count * sizeof *live_bytes);
    memset(group->bytes, 0, group->count * sizeof *group->bytes);
    for (size_t i = 0; i < program->op_count; i++) {
        uint64_t change = flw_op_change(&program->ops[i]);
        if (change != 0) {
            uint32_t owner = group->keys[program->ops[i].block];
            live_bytes[owner] += change;
            group->bytes[owner] = flw_max(group->bytes[owner], live_bytes[owner]);
        }
    }
}

static void hold(struct flw_analysis_band *bands, size_t count, size_t column,
                 const uint64_t *live_bytes)
{
    for (size_t b = 0; b < count; b++) {
        bands[b].held_bytes[column] = live_bytes[b];
    }
}

/* Fill the bands' series. A column holds the moment with the largest sum: separate maxima would add up to more than was
 * ever live. */
static void fill_series(struct group *group)
{
    struct flw_analysis *analysis = group->analysis;
    const struct flw_program *program = analysis->program;
    struct flw_analysis_band *bands = analysis->bands[group->kind];
    size_t count = analysis->band_count[group->kind], column = 0;
    uint64_t live_bytes[FLW_ANALYSIS_BANDS] = {0};
    uint64_t sum_bytes = 0, most_bytes = 0; /* most: the largest sum in this column */
    for (size_t i = 0; i < program->op_count; i++) {
        uint64_t change = flw_op_change(&program->ops[i]);
        if (i == analysis->columns.first_op[column + 1]) {
            hold(bands, count, ++column, live_bytes);
            most_bytes = sum_bytes;
        }
        if (change != 0) {
            live_bytes[group->places[group->keys[program->ops[i].block]]] += change;
            sum_bytes += change;
        }
        if (sum_bytes > most_bytes) {
            hold(bands, count, column, live_bytes);
            most_bytes = sum_bytes;
        }
    }
}

/* Choose as bands the owners with the highest maxima, so that no large owner is part of the rest. */
static void fill_bands(struct group *group)
{
    struct flw_analysis *analysis = group->analysis;
    struct flw_analysis_band *bands = analysis->bands[group->kind];
    find_most(group);
    size_t count = name_places(group, FLW_ANALYSIS_BANDS - 1, bands[0].name, sizeof *bands);
    for (size_t i = 0; i < group->count; i++) {
        struct flw_analysis_band *band = &bands[group->places[i]];
        band->most_bytes = flw_max(band->most_bytes, group->bytes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        bands[i].held_bytes = flw_host_alloc(analysis->columns.count, sizeof *bands[i].held_bytes);
    }
    analysis->band_count[group->kind] = count;
    fill_series(group);
}

/* ---- owners at a moment ---- */

static void fill_holding(struct group *group, enum flw_analysis_moment moment)
{
    struct flw_analysis_holding *holding = &group->analysis->holdings[moment];
    tally(group, moment);
    holding->owner_count = rank(group, FLW_ANALYSIS_OWNERS);
    holding->owners = flw_host_alloc(holding->owner_count, sizeof *holding->owners);
    for (size_t i = 0; i < group->order_count; i++) {
        uint32_t owner = group->order[i];
        uint64_t bytes = group->bytes[owner], count = group->counts[owner];
        bool is_rest = i >= holding->owner_count;
        holding->bytes += bytes;
        holding->count += count;
        holding->rest_bytes += is_rest ? bytes : 0;
        holding->rest_count += is_rest ? count : 0;
        if (!is_rest) {
            holding->owners[i] = (struct flw_analysis_owner){.bytes = bytes, .count = count};
            flw_owners_cut_name(group->analysis->owners, owner, holding->owners[i].name);
        }
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

static bool is_same_step(const struct flw_analysis_mark *a, const struct flw_analysis_mark *b)
{
    size_t bytes = stem_bytes(a->name);
    return bytes == stem_bytes(b->name) && memcmp(a->name, b->name, bytes) == 0;
}

/* List the ends of the steps: of the marks with "step" in their names, the most frequent kind, if there are at least
 * two of that kind. Returns their number; `ends` has room for one per mark. */
static size_t list_steps(const struct flw_analysis *analysis, uint64_t *ends)
{
    const struct flw_analysis_mark *marks = analysis->marks, *best = NULL;
    size_t most = 1;
    for (size_t i = 0; i < analysis->mark_count; i++) {
        size_t count = 0;
        size_t end = strcasestr(marks[i].name, "step") == NULL ? i : analysis->mark_count;
        for (size_t j = i; j < end; j++) {
            count += is_same_step(&marks[i], &marks[j]);
        }
        if (count > most) {
            most = count;
            best = &marks[i];
        }
    }
    size_t count = 0;
    for (size_t i = 0; best != NULL && i < analysis->mark_count; i++) {
        if (is_same_step(best, &marks[i])) {
            ends[count] = flw_max(marks[i].end_op, count == 0 ? 0 : ends[count - 1]);
            count++;
        }
    }
    return count;
}

static void add_stretch(struct flw_analysis *analysis, uint64_t end_op, const char *word,
                        size_t first, size_t last)
{
    struct flw_analysis_stretch *stretch = &analysis->stretches[analysis->stretch_count++];
    stretch->end_op = end_op;
    if (first == last) {
        snprintf(stretch->name, sizeof stretch->name, "%s %zu", word, first);
    } else {
        snprintf(stretch->name, sizeof stretch->name, "%ss %zu to %zu", word, first, last);
    }
}

/* Cut the recording into comparable stretches: all but the last have equally many steps. */
static void cut_stretches(struct flw_analysis *analysis)
{
    FLW_LOCAL uint64_t *ends = flw_host_alloc(analysis->mark_count, sizeof *ends);
    size_t count = list_steps(analysis, ends);
    size_t each = (size_t)flw_div_up(count, FLW_ANALYSIS_STRETCHES - 1);
    for (size_t i = 0; i < count; i += each) {
        size_t last = flw_min(i + each, count);
        add_stretch(analysis, ends[last - 1], "step", i + 1, last);
    }
    if (count != 0 && ends[count - 1] < analysis->op_count) {
        add_stretch(analysis, analysis->op_count, "after step", count, count);
    }
    uint64_t begin_op = analysis->initial_op_count;
    for (size_t i = 0; count == 0 && i < FLW_ANALYSIS_STRETCHES; i++) {
        uint64_t end_op =
            begin_op + (analysis->op_count - begin_op) * (i + 1) / FLW_ANALYSIS_STRETCHES;
        add_stretch(analysis, end_op, "tenth", i + 1, i + 1);
    }
}

/* Add up the survivors by owner and stretch; the places are those of the moment. */
static void fill_left(const struct group *group)
{
    struct flw_analysis *analysis = group->analysis;
    struct flw_analysis_holding *holding = &analysis->holdings[FLW_ANALYSIS_SURVIVORS];
    struct flw_analysis_stretch *stretch = analysis->stretches;
    holding->left = flw_host_alloc(holding->owner_count, sizeof *holding->left);
    for (size_t i = analysis->trace->initial_count; i < analysis->trace->block_count; i++) {
        uint64_t bytes = analysis->trace->blocks[i].size_bytes;
        size_t place = group->places[group->keys[i]];
        if (group->analysis->lives[i].begin_op == UINT64_MAX ||
            group->analysis->lives[i].end_op != analysis->op_count) {
            continue;
        }
        while (group->analysis->lives[i].begin_op >= stretch->end_op) {
            stretch++;
        }
        stretch->left_bytes += bytes;
        stretch->left_count++;
        if (place < holding->owner_count) {
            holding->left[place].bytes[stretch - analysis->stretches] += bytes;
            holding->left[place].counts[stretch - analysis->stretches]++;
        }
    }
}

static void fill_holdings(struct group *group)
{
    for (int moment = 0; moment < FLW_ANALYSIS_MOMENT_COUNT; moment++) {
        if (moment != FLW_ANALYSIS_AT_OOM || group->analysis->oom.count != 0) {
            fill_holding(group, (enum flw_analysis_moment)moment);
        }
    }
    cut_stretches(group->analysis);
    fill_left(group);
}

void flw_collect_program_owners(struct flw_analysis *analysis)
{
    FLW_LOCAL uint32_t *keys = flw_host_alloc(analysis->trace->block_count, sizeof *keys);
    for (int kind = 0; kind < FLW_ANALYSIS_KIND_COUNT; kind++) {
        struct group group = {
            .analysis = analysis, .kind = (enum flw_analysis_kind)kind, .keys = keys};
        key_blocks(&group);
        group.bytes = flw_host_alloc(group.count, sizeof *group.bytes);
        group.counts = flw_host_alloc(group.count, sizeof *group.counts);
        group.order = flw_host_alloc(group.count, sizeof *group.order);
        group.places = flw_host_alloc(group.count, 1);
        bool is_by_owner = kind == FLW_ANALYSIS_BY_OWNER;
        bool is_shown = is_by_owner ? analysis->has_code : group.values == NULL || group.count > 1;
        if (is_shown && analysis->program->max_live_bytes != 0) {
            fill_categories(&group);
            fill_bands(&group);
        }
        if (is_by_owner) {
            fill_holdings(&group);
        }
        flw_host_free(group.values);
        flw_host_free(group.bytes);
        flw_host_free(group.counts);
        flw_host_free(group.order);
        flw_host_free(group.places);
    }
}
