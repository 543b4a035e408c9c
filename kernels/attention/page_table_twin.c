/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of page_table: row r's length c, and page_table[r, j] = slot(start + j p) / p for
 * j < ceil(c / p), fill behind it. */
#include "common/table_twin.h"

#define CHUNK 256 /* columns at a time */

/* A row of the inputs. */
struct row {
    int64_t length;
    int64_t source; /* index of the first slot in req_to_token; -1: all of it is fill */
};

static struct row plan_row(struct flw_twin *twin, const struct flw_page_table_args *args, int64_t r,
                           int64_t valid, int32_t *bits)
{
    if (r >= valid) {
        return (struct row){.length = args->pad_len, .source = -1};
    }
    fallow_dtype lengths_dtype = args->lengths_is_i64 ? FALLOW_I64 : FALLOW_I32;
    fallow_dtype requests_dtype = args->requests_is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t given = flw_load_int(twin, "lengths", args->lengths, r, lengths_dtype);
    int64_t delta = flw_load_scalar(twin, "delta", args->delta, 0);
    int64_t start = args->starts == NULL ? 0 : flw_load_i32(twin, "starts", args->starts, r);
    start = flw_bound_length(start, 0, args->stride, bits);
    int64_t in_table = (int64_t)args->cols * args->page_size, in_source = args->stride - start;
    int64_t most = in_table < in_source ? in_table : in_source;
    int64_t request = flw_load_int(twin, "requests", args->requests, r, requests_dtype);
    bool is_known = request >= 0 && request < args->request_rows;
    *bits |= is_known ? 0 : FALLOW_FLAG_INDEX;
    return (struct row){.length = flw_bound_length(given, delta, most, bits),
                        .source = is_known ? request * args->stride + start : -1};
}

/* Return the page of a token slot. */
static int32_t page_of(struct flw_twin *twin, const struct flw_page_table_args *args, int32_t slot,
                       int32_t *bits)
{
    if (args->full_to_swa != NULL && slot >= 0) {
        slot = slot < args->swa_count ? flw_load_i32(twin, "full_to_swa", args->full_to_swa, slot)
                                      : -1;
    }
    if (slot < 0) {
        *bits |= FALLOW_FLAG_INDEX;
        return args->fill;
    }
    return slot / args->page_size;
}

/* Load `count` slots, from the page at `from` on, one per page. */
static void load_slots(struct flw_twin *twin, const struct flw_page_table_args *args, int64_t from,
                       int64_t count, int32_t *slots)
{
    if (args->page_size == 1) {
        flw_load(twin, "req_to_token", args->req_to_token, from * 4, slots, (size_t)count * 4);
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        slots[k] =
            flw_load_i32(twin, "req_to_token", args->req_to_token, from + k * args->page_size);
    }
}

static void write_row(struct flw_twin *twin, const struct flw_page_table_args *args, int64_t r,
                      struct row row, int32_t *bits)
{
    int64_t pages = (row.length + args->page_size - 1) / args->page_size;
    int64_t written = args->is_bounded ? pages : args->cols;
    int64_t found = row.source < 0 ? 0 : pages;
    for (int64_t begin = 0; begin < written; begin += CHUNK) {
        int32_t slots[CHUNK], columns[CHUNK];
        int64_t count = written - begin < CHUNK ? written - begin : CHUNK;
        int64_t here = found <= begin ? 0 : found - begin < count ? found - begin : count;
        if (here > 0) {
            load_slots(twin, args, row.source + begin * args->page_size, here, slots);
        }
        for (int64_t k = 0; k < count; k++) {
            columns[k] = k < here ? page_of(twin, args, slots[k], bits) : args->fill;
        }
        flw_store(twin, "page_table", args->page_table, (r * args->ld + begin) * 4, columns,
                  (size_t)count * 4);
    }
}

void flw_twin_page_table(struct flw_twin *twin, const struct flw_page_table_args *args)
{
    struct flw_table_sum sum;
    int32_t bits = 0;
    int64_t valid = flw_load_scalar(twin, "valid_count", args->valid_count, args->batch);
    flw_table_sum_begin(twin, &args->out, &sum);
    for (int64_t r = 0; r < args->batch; r++) {
        struct row row = plan_row(twin, args, r, valid, &bits);
        flw_table_sum_add(twin, &args->out, &sum, row.length);
        write_row(twin, args, r, row, &bits);
    }
    flw_table_sum_end(twin, &args->out, &sum);
    flw_raise_flags(twin, args->out.flags, bits);
}
