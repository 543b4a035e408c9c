/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the data of the page: the report's JSON, and the further data of the pictures. Lists of numbers are written as
 * differences between neighbours, or as text: numbers in base 36, each row after a semicolon. page/data.js reads these
 * lists.
 */
#include <inttypes.h>

#include "base/bits.h"
#include "report/page.h"
#include "report/page_heap.h"
#include "report/print.h"
#include "trace/trace/trace.h"

#define COLUMNS   400 /* of pictures over time */
#define MARKS     200
#define LATENCIES 64

/* ---- over time ---- */

struct series {
    const struct flw_sheet *sheet;
    struct flw_json_writer *out;
    size_t count; /* columns of a picture */
    uint64_t unit;
};

static void write_step(struct series *series, uint64_t value, uint64_t *last)
{
    flw_json_key(series->out, NULL);
    fprintf(series->out->file, "%" PRId64, (int64_t)(value - *last));
    *last = value;
}

static size_t slice(const struct series *series, size_t i)
{
    return i * series->sheet->columns.count / series->count;
}

static void write_range(struct series *series, const char *key, const struct flw_sheet_range *of,
                        bool is_low)
{
    uint64_t last = 0;
    if (of == NULL) {
        flw_json_null(series->out, key);
        return;
    }
    flw_json_begin(series->out, key, '[');
    for (size_t i = 0; i < series->count; i++) {
        uint64_t low = UINT64_MAX, high = 0;
        for (size_t c = slice(series, i); c < slice(series, i + 1); c++) {
            low = flw_min(low, of[c].low);
            high = flw_max(high, of[c].high);
        }
        write_step(series, (is_low ? low : high) / series->unit, &last);
    }
    flw_json_end(series->out, ']');
}

static void write_edges(struct series *series)
{
    const struct flw_sheet_columns *columns = &series->sheet->columns;
    const struct {
        const char *key;
        const uint64_t *edges;
    } axes[] = {{"ops", columns->first_op}, {"time", columns->time_ns}};
    flw_json_begin(series->out, "columns", '{');
    for (size_t axis = 0; axis < 2; axis++) {
        if (axes[axis].edges == NULL && axis == 1) {
            flw_json_null(series->out, axes[axis].key);
            continue;
        }
        uint64_t last = axes[axis].edges == NULL ? 0 : axes[axis].edges[0];
        flw_json_begin(series->out, axes[axis].key, '[');
        for (size_t i = 0; series->count != 0 && i <= series->count; i++) {
            write_step(series, axes[axis].edges[slice(series, i)], &last);
        }
        flw_json_end(series->out, ']');
    }
    flw_json_end(series->out, '}');
}

/* Return the column of the slice in which all bands together hold most. */
static size_t fullest(const struct series *series, enum flw_sheet_kind kind, size_t i)
{
    const struct flw_sheet *sheet = series->sheet;
    size_t best = slice(series, i);
    uint64_t most = 0;
    for (size_t c = best; c < slice(series, i + 1); c++) {
        uint64_t sum = 0;
        for (size_t b = 0; b < sheet->band_count[kind]; b++) {
            sum += sheet->bands[kind][b].held_bytes[c];
        }
        best = sum > most ? c : best;
        most = flw_max(most, sum);
    }
    return best;
}

static void write_bands(struct series *series)
{
    static const struct {
        enum flw_sheet_kind kind;
        const char *key;
    } kinds[] = {{FLW_SHEET_BY_OWNER, "by_code"},
                 {FLW_SHEET_BY_TAG, "by_tag"},
                 {FLW_SHEET_BY_POOL, "by_pool"},
                 {FLW_SHEET_BY_SIZE, "by_size"},
                 {FLW_SHEET_BY_STREAM, "by_stream"}};
    struct flw_json_writer *out = series->out;
    const struct flw_sheet *sheet = series->sheet;
    flw_json_begin(out, "kinds", '[');
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        enum flw_sheet_kind kind = kinds[k].kind;
        if (sheet->band_count[kind] == 0) {
            continue;
        }
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "key", kinds[k].key);
        flw_json_begin(out, "bands", '[');
        for (size_t b = 0; b < sheet->band_count[kind]; b++) {
            const struct flw_sheet_band *band = &sheet->bands[kind][b];
            uint64_t last = 0;
            flw_json_begin(out, NULL, '{');
            flw_json_text(out, "name", band->name);
            flw_json_number(out, "most_bytes", band->most_bytes);
            flw_json_begin(out, "held", '[');
            for (size_t i = 0; i < series->count; i++) {
                write_step(series, band->held_bytes[fullest(series, kind, i)] / series->unit,
                           &last);
            }
            flw_json_end(out, ']');
            flw_json_end(out, '}');
        }
        flw_json_end(out, ']');
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_per_thousand(struct flw_json_writer *out, const char *key, uint64_t count,
                               const struct flw_run_counts *all)
{
    bool is_known = count != FLW_NOT_APPLICABLE && all->alloc_count != FLW_NOT_APPLICABLE &&
                    all->alloc_count != 0;
    flw_json_real(out, key, is_known,
                  is_known ? 1000.0 * (double)count / (double)all->alloc_count : 0);
}

static void write_policies(struct series *series)
{
    struct flw_json_writer *out = series->out;
    flw_json_begin(out, "policies", '[');
    for (size_t i = 0; i < series->sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &series->sheet->policies[i];
        const struct flw_run_result *result = policy->result;
        uint32_t count = policy->latency_count, shown = flw_min(count, LATENCIES);
        flw_json_begin(out, NULL, '{');
        flw_json_bool(out, "ran", result->has_run);
        flw_json_text(out, "message", result->message);
        write_range(series, "reserved", policy->reserved, false);
        write_per_thousand(out, "host_waits", result->all.wait_count, &result->all);
        write_per_thousand(out, "stream_waits", result->all.stream_wait_count, &result->all);
        if (count < 2) {
            flw_json_null(out, "latency");
        } else {
            flw_json_begin(out, "latency", '[');
            for (uint32_t q = 0; q < shown; q++) {
                flw_json_general(out, NULL, 4,
                                 (double)policy->latency_ns[q * (count - 1) / (shown - 1)]);
            }
            flw_json_end(out, ']');
        }
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_marks(const struct flw_sheet *sheet, struct flw_json_writer *out)
{
    flw_json_begin(out, "marks", '[');
    for (size_t i = 0; i < flw_min(sheet->mark_count, MARKS); i++) {
        flw_json_begin(out, NULL, '[');
        flw_json_text(out, NULL, sheet->marks[i].name);
        flw_json_number(out, NULL, sheet->marks[i].begin_op);
        flw_json_number(out, NULL, sheet->marks[i].end_op);
        flw_json_end(out, ']');
    }
    flw_json_end(out, ']');
}

/* ---- the rest ---- */

static void write_size_lives(const struct flw_sheet *sheet, struct flw_json_writer *out)
{
    flw_json_begin(out, "size_lives", '[');
    for (unsigned size = 0; size < FLW_SHEET_SIZE_BINS; size++) {
        for (unsigned life = 0; life < FLW_SHEET_LIFE_BINS; life++) {
            if (sheet->size_life[size][life] != 0) {
                flw_json_begin(out, NULL, '[');
                flw_json_number(out, NULL, flw_max(size, 1));
                flw_json_number(out, NULL, life);
                flw_json_number(out, NULL, sheet->size_life[size][life]);
                flw_json_end(out, ']');
            }
        }
    }
    flw_json_end(out, ']');
}

static void write_devices(const struct flw_sheet *sheet, struct flw_json_writer *out)
{
    flw_json_begin(out, "devices", '[');
    if (sheet->of_devices[0] != '\0') {
        flw_json_text(out, NULL, sheet->of_devices);
    }
    for (size_t i = 0; i < sheet->others.count; i++) {
        flw_json_text(out, NULL, sheet->others.list[i].text);
    }
    flw_json_end(out, ']');
}

static struct series begin_series(const struct flw_sheet *sheet, struct flw_json_writer *out)
{
    struct series series = {
        .sheet = sheet, .out = out, .count = flw_min(sheet->columns.count, COLUMNS), .unit = 1};
    uint64_t most = sheet->trace->peak_requested_bytes;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        uint64_t reserved = sheet->policies[i].result->statistics.peak_reserved_bytes;
        most = flw_max(most, reserved == FLW_NOT_APPLICABLE ? 0 : reserved);
    }
    while (most / series.unit >= UINT64_C(1) << 20) {
        series.unit *= 2;
    }
    return series;
}

void flw_page_write_data(const struct flw_sheet *sheet, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_utf8 = true}, *out = &writer;
    struct series series = begin_series(sheet, out);
    const struct flw_sheet_range *requested = NULL;
    for (size_t i = 0; i < sheet->policy_count && requested == NULL; i++) {
        requested = sheet->policies[i].requested;
    }
    flw_json_begin(out, NULL, '{');
    flw_json_key(out, "report");
    out->follows = false;
    flw_print_json_sheet(sheet, out);
    out->follows = true;
    FLW_JSON_COUNTS(
        out, {"ops", sheet->op_count}, {"unit", series.unit}, {"peak_op", sheet->peak_op},
        {"oom_op", sheet->oom.count == 0 ? FLW_UNKNOWN : sheet->oom.op - (sheet->oom.op != 0)});
    flw_json_text(out, "pools_note", sheet->pools_note);
    write_devices(sheet, out);
    write_edges(&series);
    flw_json_begin(out, "requested", '{');
    write_range(&series, "low", requested, true);
    write_range(&series, "high", requested, false);
    flw_json_end(out, '}');
    write_policies(&series);
    write_bands(&series);
    write_marks(sheet, out);
    write_size_lives(sheet, out);
    flw_page_write_heap(sheet, out);
    flw_json_end(out, '}');
}
