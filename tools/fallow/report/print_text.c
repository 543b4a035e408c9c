/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tabular.h"
#include "report/verdict.h"

#define WIDTH     80
#define SPARKS    60
#define MAP_WIDTH 78

/* ---- head and table ---- */

static void print_devices(const struct flw_sheet *sheet, FILE *out)
{
    if (sheet->of_devices[0] != '\0') {
        fprintf(out, "%s\n", sheet->of_devices);
    }
    for (size_t i = 0; i < sheet->others.count; i++) {
        fprintf(out, "%s\n", sheet->others.list[i].text);
    }
}

static void print_head(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_trace *trace = sheet->trace;
    struct flw_unit unit = flw_unit_choose(trace->peak_requested_bytes);
    char events[FLW_FIGURE_BYTES];
    char blocks[FLW_FIGURE_BYTES];
    char peak[FLW_FIGURE_BYTES];
    char lag[FLW_FIGURE_BYTES];
    flw_format_count(trace->event_count, events);
    flw_format_count(trace->block_count, blocks);
    flw_format_bytes(sheet->program->max_live_bytes, unit, peak);
    flw_format_count(sheet->is_by_time ? sheet->lag_units / 1000 : sheet->lag_units, lag);
    fprintf(out, "%.40s: %s event%s, %s block%s, %zu stream%s\n", sheet->title, events,
            flw_plural(trace->event_count), blocks, flw_plural(trace->block_count),
            sheet->program->stream_count, flw_plural(sheet->program->stream_count));
    print_devices(sheet, out);
    fprintf(out, "peak requested %s %s", peak, unit.name);
    if (sheet->packed_bytes != FLW_UNKNOWN) {
        flw_format_bytes(sheet->packed_bytes, unit, peak);
        fprintf(out, ", packed %s", peak);
    } else { /* at the planner's bound of work */
        fputs(", packing stopped", out);
    }
    fprintf(out, "; %s, ", sheet->device_name);
    if (sheet->limit_bytes != 0) {
        char limit[FLW_FIGURE_BYTES];
        bool is_small = sheet->limit_bytes < unit.bytes;
        flw_format_bytes(sheet->limit_bytes, is_small ? (struct flw_unit){"B", 1} : unit, limit);
        fprintf(out, "limit %s%s, ", limit, is_small ? " B" : "");
    }
    if (sheet->lag_units == 0) {
        fprintf(out, "no work on it\n");
    } else {
        const char *late_by = sheet->lag_units == 1 ? "event" : "events";
        fprintf(out, "work %s %s late\n", lag, sheet->is_by_time ? "us" : late_by);
    }
}

static void format_share(double share, char *out)
{
    snprintf(out, FLW_FIGURE_BYTES, "%.1f", 100.0 * share);
}

/* The difference in per cent to the policy that is compared with. */
static void format_against(const struct flw_sheet *sheet, uint64_t reserved_bytes, char *out)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    if (reference != NULL && reserved_bytes != FLW_NOT_APPLICABLE) {
        snprintf(out, FLW_FIGURE_BYTES, "%+.1f",
                 100.0 * ((double)reserved_bytes / (double)flw_sheet_held(sheet, reference) - 1.0));
    }
}

enum column {
    NAME,
    HELD,
    RATIO,
    AGAINST,
    HOLES,
    FAILED,
    CALLS,
    TIME,
    COLUMN_COUNT
};

static flw_table_cell *add_row(struct flw_table *table, const char *name)
{
    flw_table_cell *cells = flw_table_add(table, NULL);
    snprintf(cells[NAME], FLW_TABLE_CELL_BYTES, "%s", name);
    for (size_t c = RATIO; c < COLUMN_COUNT; c++) {
        strcpy(cells[c], "-");
    }
    return cells;
}

/* The bound of those that make no one wait, below the bound, where the two may differ. */
static void add_without_wait(const struct flw_sheet *sheet, struct flw_table *table)
{
    struct flw_unit unit = flw_unit_choose(sheet->trace->peak_requested_bytes);
    flw_table_cell *cells = add_row(table, FLW_PLAN_WITHOUT_WAIT);
    flw_format_bytes(sheet->without_wait_bytes, unit, cells[HELD]);
    format_against(sheet, sheet->without_wait_bytes, cells[AGAINST]);
    if (sheet->program->max_live_bytes != 0) {
        snprintf(cells[RATIO], FLW_TABLE_CELL_BYTES, "%.3f",
                 (double)sheet->without_wait_bytes / (double)sheet->program->max_live_bytes);
    }
}

static void add_policy(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                       struct flw_table *table)
{
    const struct flw_run_result *result = policy->result;
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    struct flw_unit unit = flw_unit_choose(sheet->trace->peak_requested_bytes);
    flw_table_cell *cells = add_row(table, policy->label);
    flw_format_bytes(result->statistics.peak_reserved_bytes, unit, cells[HELD]);
    flw_format_optional(result->failure_count, cells[FAILED]);
    flw_format_optional(result->statistics.driver_call_count, cells[CALLS]);
    if (flw_sheet_ratio(policy) > 0) {
        snprintf(cells[RATIO], FLW_TABLE_CELL_BYTES, "%.3f", flw_sheet_ratio(policy));
    }
    if (policy != reference) {
        format_against(sheet, result->statistics.peak_reserved_bytes, cells[AGAINST]);
    }
    if (flw_sheet_frame(policy, "peak reserved") != NULL) {
        format_share(policy->fragmentation, cells[HOLES]);
    }
    if (result->has_times) {
        snprintf(cells[TIME], FLW_TABLE_CELL_BYTES, "%.0f", result->all_times.p50_ns);
    }
}

/* The rows printed. */
static size_t print_table(const struct flw_sheet *sheet, size_t columns, FILE *out)
{
    static const char *const heads[COLUMN_COUNT] = {"policy", "",       "ratio", "diff %",
                                                    "frag %", "failed", "calls", "ns"};
    struct flw_unit unit = flw_unit_choose(sheet->trace->peak_requested_bytes);
    struct flw_table table = {.column_count = COLUMN_COUNT, .head_count = 1};
    flw_table_cell *cells = flw_table_add(&table, NULL);
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        strcpy(cells[c], heads[c]);
    }
    snprintf(cells[HELD], FLW_TABLE_CELL_BYTES, "held %s", unit.name);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        add_policy(sheet, &sheet->policies[i], &table);
        if (sheet->policies[i].result->statistics.without_wait_bytes != FLW_NOT_APPLICABLE &&
            flw_plan_may_wait(sheet->program, sheet->lag_units)) {
            add_without_wait(sheet, &table);
        }
    }
    size_t row_count = table.row_count - 1;
    flw_table_print(&table, columns, out);
    flw_table_finish(&table);
    return row_count;
}

/* ---- sparkline ---- */

static void print_level(uint64_t bytes, uint64_t top_bytes, bool is_ascii, FILE *out)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    double share = top_bytes == 0 ? 0 : (double)bytes / (double)top_bytes;
    size_t level = bytes == 0 ? 0 : 1 + (size_t)(7.0 * share + 0.5);
    fputs(is_ascii ? letters[level] : blocks[level], out);
}

static void print_spark(const struct flw_sheet *sheet, const char *name,
                        const struct flw_sheet_range *series, uint64_t top_bytes, bool is_ascii,
                        FILE *out)
{
    size_t count = flw_min(sheet->columns.count, SPARKS);
    fprintf(out, "%-19.19s ", name);
    for (size_t i = 0; i < count; i++) {
        uint64_t high_bytes = 0;
        size_t end = (i + 1) * sheet->columns.count / count;
        for (size_t c = i * sheet->columns.count / count; c < end; c++) {
            high_bytes = flw_max(high_bytes, series[c].high);
        }
        print_level(high_bytes, top_bytes, is_ascii, out);
    }
    fputc('\n', out);
}

static void print_sparks(const struct flw_sheet *sheet, const struct flw_sheet_policy *reference,
                         const struct flw_sheet_policy *best, bool is_ascii, FILE *out)
{
    const struct flw_sheet_policy *shown = reference->has_series ? reference : best;
    if (shown == NULL || !shown->has_series) {
        return;
    }
    uint64_t top_bytes = shown->result->statistics.peak_reserved_bytes;
    bool shows_best = best != NULL && best != shown && best->has_series;
    if (shows_best) {
        top_bytes = flw_max(top_bytes, best->result->statistics.peak_reserved_bytes);
    }
    print_spark(sheet, "requested", shown->requested, top_bytes, is_ascii, out);
    print_spark(sheet, shown->label, shown->reserved, top_bytes, is_ascii, out);
    if (shows_best) {
        print_spark(sheet, best->label, best->reserved, top_bytes, is_ascii, out);
    }
}

/* ---- heap map ---- */

/* Segments end to end, cut into cells: how many bytes of each cell are allocated. */
static void fill_map(const struct flw_sheet_frame *frame, uint64_t cell_bytes, size_t cell_count,
                     uint64_t *allocated_bytes)
{
    uint64_t offset = 0; /* of the segment, end to end */
    size_t next = 0;
    for (size_t i = 0; i < frame->segment_count; i++) {
        const struct flw_sheet_segment *segment = &frame->segments[i];
        uint64_t end = segment->address + segment->bytes;
        while (next < frame->block_count && frame->blocks[next].address < segment->address) {
            next++;
        }
        for (; next < frame->block_count && frame->blocks[next].address < end; next++) {
            const struct flw_sheet_block *block = &frame->blocks[next];
            uint64_t at = offset + (block->address - segment->address);
            uint64_t left = flw_min(block->block_bytes, end - block->address);
            while (left != 0 && at / cell_bytes < cell_count) {
                uint64_t part = flw_min(left, cell_bytes - at % cell_bytes);
                allocated_bytes[at / cell_bytes] += part;
                at += part;
                left -= part;
            }
        }
        offset += segment->bytes;
    }
}

static void print_map(const struct flw_sheet_policy *policy, size_t row_count, const char *when,
                      FILE *out)
{
    if (row_count == 0) {
        return;
    }
    const struct flw_sheet_frame *frame = flw_sheet_frame(policy, "peak reserved");
    uint64_t allocated_bytes[3 * MAP_WIDTH] = {0};
    uint64_t total_bytes = 0;
    char cell[FLW_FIGURE_BYTES];
    for (size_t i = 0; i < frame->segment_count; i++) {
        total_bytes += frame->segments[i].bytes;
    }
    if (total_bytes == 0) {
        return;
    }
    size_t cell_count = row_count * MAP_WIDTH;
    uint64_t cell_bytes = flw_div_up(total_bytes, cell_count);
    cell_count = (size_t)flw_div_up(total_bytes, cell_bytes);
    fill_map(frame, cell_bytes, cell_count, allocated_bytes);
    struct flw_unit unit = flw_unit_choose(cell_bytes);
    flw_format_bytes(cell_bytes, unit, cell);
    fprintf(out, "%.20s %s: a cell is %s %s, . empty, 1-9 tenths, # full\n", policy->label, when,
            cell, unit.name);
    for (size_t i = 0; i < cell_count; i++) {
        uint64_t whole = flw_min(cell_bytes, total_bytes - i * cell_bytes);
        uint64_t tenths = flw_min(9, flw_max(1, allocated_bytes[i] * 10 / whole));
        fputc(allocated_bytes[i] == 0       ? '.'
              : allocated_bytes[i] >= whole ? '#'
                                            : (char)('0' + tenths),
              out);
        if ((i + 1) % MAP_WIDTH == 0 || i + 1 == cell_count) {
            fputc('\n', out);
        }
    }
}

/* ---- words ---- */

/* Breaks a sentence between words; `used` columns of the first line are taken. */
static void print_wrapped_behind(size_t used, const char *text, FILE *out)
{
    while (strlen(text) > WIDTH - used) {
        size_t length = WIDTH - used;
        while (length > 0 && text[length] != ' ') {
            length--;
        }
        length = length == 0 ? strcspn(text, " ")
                             : length; /* never split a setting: users copy settings */
        fprintf(out, "%.*s\n", (int)length, text);
        text += length + (text[length] == ' ');
        used = 0;
    }
    fprintf(out, "%s\n", text);
}

static void print_wrapped(const char *text, FILE *out)
{
    print_wrapped_behind(0, text, out);
}

/* ---- out of memory ---- */

/* "served by fallow (from 34 MiB on), async": those with that outcome; nothing where there are none. */
static void list_answers(const struct flw_sheet_oom *oom, enum flw_sheet_outcome outcome,
                         const char *heading, FILE *out)
{
    char line[FLW_SHEET_ANSWERS * (FLW_POLICY_NAME_BYTES + 2 * FLW_FIGURE_BYTES)];
    int length = snprintf(line, sizeof line, "%s", heading);
    size_t count = 0;
    for (size_t i = 0; i < oom->answer_count; i++) {
        const struct flw_sheet_answer *answer = &oom->answers[i];
        char least[FLW_FIGURE_BYTES];
        if (answer->outcome != outcome) {
            continue;
        }
        length += snprintf(line + length, sizeof line - (size_t)length, "%s %s",
                           count++ == 0 ? "" : ",", answer->label);
        if (answer->smallest_limit_bytes != FLW_UNKNOWN) {
            struct flw_unit unit = flw_unit_choose(answer->smallest_limit_bytes);
            flw_format_bytes(answer->smallest_limit_bytes, unit, least);
            length += snprintf(line + length, sizeof line - (size_t)length, " (from %s %s)", least,
                               unit.name);
        }
    }
    if (count != 0) {
        print_wrapped(line, out);
    }
}

/* Who would have served it, and from which limit on. */
static void print_answers(const struct flw_sheet_oom *oom, FILE *out)
{
    char limit[FLW_FIGURE_BYTES];
    if (oom->answer_count == 0) {
        return;
    }
    if (oom->limit_bytes == FLW_UNKNOWN) {
        fputs("that request, replayed (what the device had then is not known):\n", out);
    } else {
        struct flw_unit unit = flw_unit_choose(oom->limit_bytes);
        flw_format_bytes(oom->limit_bytes, unit, limit);
        fprintf(out, "that request, replayed with %s %s%s:\n", limit, unit.name,
                oom->is_limit_given ? ", the limit given" : ", reserved or free then");
    }
    list_answers(oom, FLW_SHEET_SERVED, "served by", out);
    list_answers(oom, FLW_SHEET_REFUSED, "refused by", out);
    list_answers(oom, FLW_SHEET_REFUSED_BEFORE, "out of memory before it:", out);
    list_answers(oom, FLW_SHEET_NOT_ASKED, "would fit:", out);
    if (!oom->is_searched) {
        fputs("(too long a program to look for the smallest limits)\n", out);
    }
}

/* First of all, where there was one. */
static void print_oom(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    struct flw_unit unit = flw_unit_choose(flw_max(oom->asked_bytes, oom->live_bytes));
    char asked[FLW_FIGURE_BYTES], live[FLW_FIGURE_BYTES], rest[FLW_FIGURE_BYTES], line[512];
    if (oom->count == 0) {
        return;
    }
    flw_format_bytes(oom->asked_bytes, unit, asked);
    flw_format_bytes(oom->live_bytes, unit, live);
    flw_format_count(oom->event, rest);
    int length = snprintf(
        line, sizeof line, "out of memory at event %s: %s%s%s %s asked for beside %s %s in use",
        rest, oom->owner, oom->owner[0] != '\0' ? ", " : "", asked, unit.name, live, unit.name);
    if (oom->free_bytes != FLW_UNKNOWN) {
        flw_format_bytes(oom->free_bytes, unit, rest);
        length += snprintf(line + length, sizeof line - (size_t)length,
                           "; the device had %s %s free", rest, unit.name);
    }
    if (oom->pending_count != 0) {
        char count[FLW_FIGURE_BYTES];
        flw_format_bytes(oom->pending_bytes, unit, rest);
        flw_format_count(oom->pending_count, count);
        length += snprintf(line + length, sizeof line - (size_t)length,
                           "; %s %s in %s block%s were freed and waited for other streams "
                           "(record_stream)",
                           rest, unit.name, count, flw_plural(oom->pending_count));
    }
    if (oom->idle_bytes != FLW_UNKNOWN) {
        flw_format_bytes(oom->idle_bytes, unit, rest);
        length += snprintf(line + length, sizeof line - (size_t)length,
                           "; %s %s were reserved and idle", rest, unit.name);
    }
    if (oom->largest_hole_bytes != FLW_UNKNOWN) {
        flw_format_bytes(oom->largest_hole_bytes, unit, rest);
        length += snprintf(line + length, sizeof line - (size_t)length,
                           "; the largest hole had %s %s", rest, unit.name);
    }
    if (oom->count > 1) {
        flw_format_count(oom->count, rest);
        snprintf(line + length, sizeof line - (size_t)length, "; the first of %s", rest);
    }
    print_wrapped(line, out);
    print_answers(oom, out);
    fputs("(the table is of the program without that request)\n", out);
}

/* ---- owners ---- */

#define OWNERS_SHOWN 8
#define LEFT_WIDTH   FLW_SHEET_STRETCHES

/* How much each stretch left behind, beside the one that left most. */
static void print_left(const struct flw_sheet *sheet, const struct flw_sheet_left *left,
                       bool is_ascii, FILE *out)
{
    uint64_t most = 0;
    for (size_t i = 0; i < sheet->stretch_count; i++) {
        most = flw_max(most, left->bytes[i]);
    }
    fputs("  ", out);
    for (size_t i = 0; i < sheet->stretch_count; i++) {
        print_level(left->bytes[i], most, is_ascii, out);
    }
    fprintf(out, "%*s", (int)(LEFT_WIDTH - sheet->stretch_count), "");
}

/* `left` may be NULL. */
static void print_owner(const struct flw_sheet *sheet, const struct flw_sheet_holding *holding,
                        const struct flw_sheet_owner *owner, const struct flw_sheet_left *left,
                        bool is_ascii, FILE *out)
{
    char bytes[FLW_FIGURE_BYTES], count[FLW_FIGURE_BYTES];
    double share = 100.0 * (double)owner->bytes / (double)holding->bytes;
    flw_format_bytes(owner->bytes, flw_unit_choose(holding->bytes), bytes);
    flw_format_count(owner->count, count);
    fprintf(out, "%12s %5.1f %7s", bytes, share, count);
    if (left != NULL) {
        print_left(sheet, left, is_ascii, out);
    }
    fprintf(out, "  %s\n", owner->name);
}

/* The largest owners of a moment, in the program's own words. */
static void print_holding(const struct flw_sheet *sheet, enum flw_sheet_moment moment,
                          const char *what, bool is_ascii, FILE *out)
{
    const struct flw_sheet_holding *holding = &sheet->holdings[moment];
    struct flw_sheet_owner rest = {
        .name = "the rest", .bytes = holding->rest_bytes, .count = holding->rest_count};
    struct flw_sheet_left left = {{0}, {0}};
    char heading[FLW_FIGURE_BYTES];
    if (holding->bytes == 0) {
        return;
    }
    snprintf(heading, sizeof heading, "held %s", flw_unit_choose(holding->bytes).name);
    fprintf(out, "%12s     %%  blocks", heading);
    if (holding->left != NULL) {
        bool has_steps = strncmp(sheet->stretches[0].name, "step", 4) == 0;
        fprintf(out, "  %-*s", LEFT_WIDTH, has_steps ? "by steps" : "by tenths");
        for (size_t i = 0; i < sheet->stretch_count; i++) {
            left.bytes[i] = sheet->stretches[i].left_bytes;
        }
    }
    fprintf(out, "  %s, by owner\n", what);
    for (size_t i = 0; i < holding->owner_count; i++) {
        const struct flw_sheet_owner *owner = &holding->owners[i];
        const struct flw_sheet_left *of = holding->left == NULL ? NULL : &holding->left[i];
        if (i < OWNERS_SHOWN) {
            print_owner(sheet, holding, owner, of, is_ascii, out);
            continue;
        }
        rest.bytes += owner->bytes;
        rest.count += owner->count;
    }
    for (size_t i = 0; holding->left != NULL && i < flw_min(holding->owner_count, OWNERS_SHOWN);
         i++) {
        for (size_t s = 0; s < sheet->stretch_count; s++) {
            left.bytes[s] -= holding->left[i].bytes[s];
        }
    }
    if (rest.count != 0) {
        print_owner(sheet, holding, &rest, holding->left == NULL ? NULL : &left, is_ascii, out);
    }
}

/* Print the owners if the recording has call stacks; false if it has none. */
static bool print_owners(const struct flw_sheet *sheet, bool is_ascii, FILE *out)
{
    if (sheet->category_count[FLW_SHEET_BY_OWNER] == 0) {
        return false;
    }
    print_holding(sheet, FLW_SHEET_AT_OOM, "when it ran out of memory", is_ascii, out);
    print_holding(sheet, FLW_SHEET_AT_PEAK, "at the peak", is_ascii, out);
    print_holding(sheet, FLW_SHEET_SURVIVORS, "allocated in the recording, not freed", is_ascii,
                  out);
    print_wrapped_behind((size_t)fprintf(out, "owner: "), sheet->owner_rule, out);
    fputc('\n', out);
    return true;
}

/* ---- the screen ---- */

#define SCREEN_LINES 24
#define FIXED_LINES  9 /* head, headings, sparklines, what parts them, and the map's own heading */
#define MAP_MOST     3

static size_t count_lines(const char *text)
{
    return text[0] == '\0' ? 0 : 1 + strlen(text) / WIDTH;
}

/* What the screen has room for. */
static size_t find_map_rows(const struct flw_sheet *sheet, size_t row_count)
{
    size_t taken = FIXED_LINES + row_count + count_lines(sheet->pools_note) +
                   count_lines(sheet->verdict) + count_lines(sheet->advice.text);
    return taken < SCREEN_LINES ? flw_min(SCREEN_LINES - taken, MAP_MOST) : 0;
}

static void print_verdict(const struct flw_sheet *sheet, const struct flw_print_style *style,
                          FILE *out)
{
    fputs(style->uses_colour ? "\033[1m" : "", out);
    print_wrapped(sheet->verdict, out);
    fputs(style->uses_colour ? "\033[0m" : "", out);
    print_wrapped(sheet->advice.text, out);
}

/* Print a heap without a history: its owners and its holes. */
static void print_state(const struct flw_sheet *sheet, const struct flw_print_style *style,
                        FILE *out)
{
    const struct flw_trace *trace = sheet->trace;
    const struct flw_sheet_policy *recorded = flw_sheet_find(sheet, "recorded");
    char blocks[FLW_FIGURE_BYTES], segments[FLW_FIGURE_BYTES];
    flw_format_count(trace->block_count, blocks);
    flw_format_count(trace->segment_count, segments);
    fprintf(out, "%.40s: %s block%s in %s segment%s, %zu stream%s; no history\n", sheet->title,
            blocks, flw_plural(trace->block_count), segments, flw_plural(trace->segment_count),
            sheet->program->stream_count, flw_plural(sheet->program->stream_count));
    print_devices(sheet, out);
    fputc('\n', out);
    print_holding(sheet, FLW_SHEET_AT_END, "at the dump", style->is_ascii, out);
    print_wrapped_behind((size_t)fprintf(out, "owner: "), sheet->owner_rule, out);
    if (recorded != NULL && flw_sheet_frame(recorded, "peak reserved") != NULL) {
        print_map(recorded, MAP_MOST, "at the dump", out);
    }
    print_verdict(sheet, style, out);
}

void flw_print_text(const struct flw_sheet *sheet, const struct flw_print_style *style, FILE *out)
{
    const struct flw_sheet_policy *reference = flw_verdict_reference(sheet);
    const struct flw_sheet_policy *best = flw_verdict_best(sheet);
    const struct flw_sheet_policy *mapped = reference;
    if (sheet->is_state) {
        print_state(sheet, style, out);
        return;
    }
    print_oom(sheet, out);
    print_head(sheet, out);
    fputc('\n', out);
    bool has_owners = print_owners(sheet, style->is_ascii, out);
    size_t row_count = print_table(sheet, style->columns, out);
    size_t map_rows = find_map_rows(sheet, row_count);
    fputc('\n', out);
    if (reference != NULL) {
        print_sparks(sheet, reference, best, style->is_ascii, out);
    }
    if (mapped == NULL || flw_sheet_frame(mapped, "peak reserved") == NULL) {
        mapped = best;
    }
    if (!has_owners && mapped != NULL && flw_sheet_frame(mapped, "peak reserved") != NULL) {
        print_map(mapped, map_rows, "at its peak", out);
    }
    if (sheet->pools_note[0] != '\0') {
        print_wrapped(sheet->pools_note, out);
    }
    print_verdict(sheet, style, out);
}
