/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of concat_pages: row m is first[m / repeat, 0 .. la), then second[m, 0 .. lb), then fill.
 */
#include "common/table_twin.h"

#define CHUNK 256 /* columns at a time */

/* Number of elements from each source. */
struct row {
    int64_t first, length; /* la, la + lb; both 0 in a pad, which has its own length */
};

static struct row plan_row(struct flw_twin *twin, const struct flw_concat_pages_args *args,
                           int64_t m, int32_t *bits)
{
    struct row row = {0};
    if (args->first != NULL) {
        int64_t given = flw_load_i32(twin, "first_lengths", args->first_lengths, m / args->repeat);
        int64_t most = args->first_cols < args->cols ? args->first_cols : args->cols;
        row.first = flw_bound_length(given, 0, most, bits);
    }
    int64_t given = args->second_cols, room = args->cols - row.first;
    if (args->second_lengths != NULL) {
        given = flw_load_i32(twin, "second_lengths", args->second_lengths, m);
    }
    row.length =
        row.first +
        flw_bound_length(given, 0, args->second_cols < room ? args->second_cols : room, bits);
    return row;
}

static int32_t load_second(struct flw_twin *twin, const struct flw_concat_pages_args *args,
                           int64_t i, int32_t *bits)
{
    int64_t value = flw_load_int(twin, "second", args->second, i,
                                 args->second_is_i64 ? FALLOW_I64 : FALLOW_I32);
    if (value < INT32_MIN || value > INT32_MAX) {
        *bits |= FALLOW_FLAG_INDEX;
        return args->fill;
    }
    return (int32_t)value;
}

static void write_row(struct flw_twin *twin, const struct flw_concat_pages_args *args, int64_t m,
                      struct row row, int64_t written, int32_t *bits)
{
    for (int64_t begin = 0; begin < written; begin += CHUNK) {
        int32_t columns[CHUNK];
        int64_t count = written - begin < CHUNK ? written - begin : CHUNK;
        int64_t here = row.first <= begin          ? 0
                       : row.first - begin < count ? row.first - begin
                                                   : count;
        if (here > 0) {
            int64_t from = m / args->repeat * args->first_ld + begin;
            flw_load(twin, "first", args->first, from * 4, columns, (size_t)here * 4);
        }
        for (int64_t k = here; k < count; k++) {
            int64_t j = begin + k;
            columns[k] = j < row.length
                             ? load_second(twin, args, m * args->second_ld + j - row.first, bits)
                             : args->fill;
        }
        flw_store(twin, "page_table", args->page_table, (m * args->ld + begin) * 4, columns,
                  (size_t)count * 4);
    }
}

void flw_twin_concat_pages(struct flw_twin *twin, const struct flw_concat_pages_args *args)
{
    struct flw_table_sum sum;
    int32_t bits = 0;
    int64_t valid = flw_load_scalar(twin, "valid_count", args->valid_count, args->batch);
    flw_table_sum_begin(twin, &args->out, &sum);
    for (int64_t m = 0; m < (int64_t)args->batch * args->repeat; m++) {
        bool is_pad = m / args->repeat >= valid;
        struct row row = is_pad ? (struct row){0} : plan_row(twin, args, m, &bits);
        int64_t length = is_pad ? args->pad_len : row.length;
        flw_table_sum_add(twin, &args->out, &sum, length);
        write_row(twin, args, m, row, args->is_bounded ? length : args->cols, &bits);
    }
    flw_table_sum_end(twin, &args->out, &sum);
    flw_raise_flags(twin, args->out.flags, bits);
}
