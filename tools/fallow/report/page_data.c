/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the data of the page: the report's JSON, and the further data of the pictures. A list of numbers is a text: rows
 * of numbers in base 36. page/data.js reads the rows.
 */
#include "base/bits.h"
#include "report/page.h"
#include "report/print.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#define COLUMNS   400 /* of pictures over time */
#define MARKS     200
#define LATENCIES 64

/* ---- over time ---- */

struct series {
    const struct flw_analysis *analysis;
    struct flw_json_writer *out;
    size_t count; /* columns of a picture */
    uint64_t unit;
};

/* Return the first column of the analysis in column i of a picture. */
static size_t slice(const struct series *series, size_t i)
{
    return i * series->analysis->columns.count / series->count;
}

static void write_range(const struct series *series, const char *key,
                        const struct flw_analysis_range *of, bool is_low)
{
    uint64_t values[COLUMNS];
    if (of == NULL) {
        flw_json_null(series->out, key);
        return;
    }
    for (size_t i = 0; i < series->count; i++) {
        uint64_t low = UINT64_MAX, high = 0;
        for (size_t c = slice(series, i); c < slice(series, i + 1); c++) {
            low = flw_min(low, of[c].low);
            high = flw_max(high, of[c].high);
        }
        values[i] = (is_low ? low : high) / series->unit;
    }
    flw_page_write_steps(series->out, key, values, series->count);
}

static void write_edges(const struct series *series, const char *key, const uint64_t *edges)
{
    uint64_t values[COLUMNS + 1];
    if (edges == NULL || series->count == 0) {
        flw_json_null(series->out, key);
        return;
    }
    for (size_t i = 0; i <= series->count; i++) {
        values[i] = edges[slice(series, i)] - edges[0];
    }
    flw_page_write_steps(series->out, key, values, series->count + 1);
}

/* Return the column of the analysis in column i of a picture in which all bands together hold most. */
static size_t fullest(const struct series *series, enum flw_analysis_kind kind, size_t i)
{
    const struct flw_analysis *analysis = series->analysis;
    size_t best = slice(series, i);
    uint64_t most = 0;
    for (size_t c = best; c < slice(series, i + 1); c++) {
        uint64_t sum = 0;
        for (size_t b = 0; b < analysis->band_count[kind]; b++) {
            sum += analysis->bands[kind][b].held_bytes[c];
        }
        best = sum > most ? c : best;
        most = flw_max(most, sum);
    }
    return best;
}

static void write_bands(const struct series *series, enum flw_analysis_kind kind)
{
    const struct flw_analysis *analysis = series->analysis;
    size_t columns[COLUMNS];
    uint64_t values[COLUMNS];
    for (size_t i = 0; i < series->count; i++) {
        columns[i] = fullest(series, kind, i);
    }
    flw_json_begin(series->out, "bands", '[');
    for (size_t b = 0; b < analysis->band_count[kind]; b++) {
        const struct flw_analysis_band *band = &analysis->bands[kind][b];
        flw_json_begin(series->out, NULL, '{');
        flw_json_text(series->out, "name", band->name);
        flw_json_number(series->out, "most_bytes", band->most_bytes);
        for (size_t i = 0; i < series->count; i++) {
            values[i] = band->held_bytes[columns[i]] / series->unit;
        }
        flw_page_write_steps(series->out, "held", values, series->count);
        flw_json_end(series->out, '}');
    }
    flw_json_end(series->out, ']');
}

static void write_kinds(const struct series *series)
{
    static const struct {
        enum flw_analysis_kind kind;
        const char *key;
    } kinds[] = {{FLW_ANALYSIS_BY_OWNER, "by_code"},
                 {FLW_ANALYSIS_BY_TAG, "by_tag"},
                 {FLW_ANALYSIS_BY_POOL, "by_pool"},
                 {FLW_ANALYSIS_BY_SIZE, "by_size"},
                 {FLW_ANALYSIS_BY_STREAM, "by_stream"}};
    flw_json_begin(series->out, "kinds", '[');
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (series->analysis->band_count[kinds[k].kind] != 0) {
            flw_json_begin(series->out, NULL, '{');
            flw_json_text(series->out, "key", kinds[k].key);
            write_bands(series, kinds[k].kind);
            flw_json_end(series->out, '}');
        }
    }
    flw_json_end(series->out, ']');
}

static void write_policies(const struct series *series)
{
    struct flw_json_writer *out = series->out;
    flw_json_begin(out, "policies", '[');
    for (size_t i = 0; i < series->analysis->policy_count; i++) {
        const struct flw_analysis_policy *policy = &series->analysis->policies[i];
        uint32_t count = policy->latency_count, shown = count < 2 ? 0 : flw_min(count, LATENCIES);
        flw_json_begin(out, NULL, '{');
        flw_json_bool(out, "ran", policy->result->has_run);
        flw_json_text(out, "message", policy->result->message);
        write_range(series, "reserved", policy->reserved, false);
        flw_json_begin(out, "latency", '[');
        for (uint32_t q = 0; q < shown; q++) {
            float ns = policy->latency_ns[q * (count - 1) / (shown - 1)];
            flw_json_general(out, NULL, 4, (double)ns);
        }
        flw_json_end(out, ']');
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_marks(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    flw_json_begin(out, "marks", '[');
    for (size_t i = 0; i < flw_min(analysis->mark_count, MARKS); i++) {
        flw_json_begin(out, NULL, '[');
        flw_json_text(out, NULL, analysis->marks[i].name);
        flw_json_number(out, NULL, analysis->marks[i].begin_op);
        flw_json_number(out, NULL, analysis->marks[i].end_op);
        flw_json_end(out, ']');
    }
    flw_json_end(out, ']');
}

/* ---- the rest ---- */

static void write_size_lives(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    uint64_t rows[3 * FLW_ANALYSIS_SIZE_BINS * FLW_ANALYSIS_LIFE_BINS];
    size_t count = 0;
    for (unsigned size = 0; size < FLW_ANALYSIS_SIZE_BINS; size++) {
        for (unsigned life = 0; life < FLW_ANALYSIS_LIFE_BINS; life++) {
            if (analysis->size_life[size][life] != 0) {
                rows[count++] = flw_max(size, 1);
                rows[count++] = life;
                rows[count++] = analysis->size_life[size][life];
            }
        }
    }
    flw_page_write_rows(out, "size_lives", rows, count, 3);
}

static void write_devices(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    flw_json_begin(out, "devices", '[');
    if (analysis->of_devices[0] != '\0') {
        flw_json_text(out, NULL, analysis->of_devices);
    }
    for (size_t i = 0; i < analysis->others.count; i++) {
        flw_json_text(out, NULL, analysis->others.list[i].text);
    }
    flw_json_end(out, ']');
}

static struct series begin_series(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    struct series series = {.analysis = analysis,
                            .out = out,
                            .count = flw_min(analysis->columns.count, COLUMNS),
                            .unit = 1};
    uint64_t most = analysis->trace->peak_requested_bytes;
    for (size_t i = 0; i < analysis->policy_count; i++) {
        uint64_t reserved = analysis->policies[i].result->statistics.peak_reserved_bytes;
        most = flw_max(most, reserved == FLW_NOT_APPLICABLE ? 0 : reserved);
    }
    while (most / series.unit >= UINT64_C(1) << 20) {
        series.unit *= 2;
    }
    return series;
}

void flw_page_write_data(const struct flw_analysis *analysis, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_utf8 = true, .is_in_page = true},
                           *out = &writer;
    struct series series = begin_series(analysis, out);
    const struct flw_analysis_range *requested = NULL;
    for (size_t i = 0; i < analysis->policy_count && requested == NULL; i++) {
        requested = analysis->policies[i].requested;
    }
    flw_json_begin(out, NULL, '{');
    flw_json_key(out, "report");
    out->follows = false;
    flw_print_json_analysis(analysis, out);
    out->follows = true;
    FLW_JSON_COUNTS(
        out, {"ops", analysis->op_count}, {"unit", series.unit}, {"peak_op", analysis->peak_op},
        {"oom_op",
         analysis->oom.count == 0 ? FLW_UNKNOWN : analysis->oom.op - (analysis->oom.op != 0)});
    flw_json_text(out, "pools_note", analysis->pools_note);
    write_devices(analysis, out);
    write_edges(&series, "ops_edges", analysis->columns.first_op);
    write_edges(&series, "time_edges", analysis->columns.time_ns);
    write_range(&series, "low", requested, true);
    write_range(&series, "high", requested, false);
    write_policies(&series);
    write_kinds(&series);
    write_marks(analysis, out);
    write_size_lives(analysis, out);
    flw_page_write_heap(analysis, out);
    flw_json_end(out, '}');
}
