/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of kv_indices: kv_indices[cu[b] + t] = slot(start[b] + t) for t < length[b], fill
 * in the rest of row b. */
#include "common/twin.h"

#define CHUNK 256 /* indices at a time */

/* A row of the inputs. */
struct row {
    int64_t begin, end; /* of kv_indices */
    int64_t found;      /* number of slots among them, from the first on */
    int64_t source;     /* index of the first slot in req_to_token */
};

static struct row plan_row(struct flw_twin *twin, const struct flw_kv_indices_args *args, int64_t b,
                           int32_t *bits)
{
    int64_t begin = flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, b);
    int64_t end = flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, b + 1);
    int64_t width = flw_bound_length(end, -begin, INT32_MAX, bits);
    int64_t length = width, start = 0;
    if (args->lengths != NULL) {
        length = flw_bound_length(flw_load_i32(twin, "lengths", args->lengths, b), 0, width, bits);
    }
    if (length == 0) {
        return (struct row){.begin = begin, .end = begin + width};
    }
    if (args->starts != NULL) {
        start =
            flw_bound_length(flw_load_i32(twin, "starts", args->starts, b), 0, args->stride, bits);
    }
    fallow_dtype dtype = args->requests_is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t request = flw_load_int(twin, "requests", args->requests, b, dtype);
    bool is_known = request >= 0 && request < args->request_rows;
    *bits |= is_known ? 0 : FALLOW_FLAG_INDEX;
    length = flw_bound_length(length, 0, args->stride - start, bits);
    return (struct row){.begin = begin,
                        .end = begin + width,
                        .found = is_known ? length : 0,
                        .source = is_known ? request * args->stride + start : 0};
}

/* Write indices [begin, end) of the output, with a row's slots as far as it has any. */
static void write(struct flw_twin *twin, const struct flw_kv_indices_args *args,
                  const struct row *row, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += CHUNK) {
        int32_t indices[CHUNK];
        int64_t count = end - i < CHUNK ? end - i : CHUNK;
        int64_t t = i - row->begin, here = row->found - t;
        here = here < 0 ? 0 : here < count ? here : count;
        if (here > 0) {
            flw_load(twin, "req_to_token", args->req_to_token, (row->source + t) * 4, indices,
                     (size_t)here * 4);
        }
        for (int64_t k = here; k < count; k++) {
            indices[k] = args->fill;
        }
        flw_store(twin, "kv_indices", args->kv_indices, i * 4, indices, (size_t)count * 4);
    }
}

void flw_twin_kv_indices(struct flw_twin *twin, const struct flw_kv_indices_args *args)
{
    int32_t bits = 0;
    int64_t valid = flw_load_scalar(twin, "valid_count", args->valid_count, args->batch);
    valid = valid < 0 ? 0 : valid < args->batch ? valid : args->batch;
    int64_t total = flw_bound_length(flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, valid), 0,
                                     args->capacity, &bits);
    int64_t written = 0;
    for (int64_t b = 0; b < valid; b++) {
        struct row row = plan_row(twin, args, b, &bits);
        int64_t end = row.end < total ? row.end : total;
        if (row.begin == written && end > written) { /* cu ascends from 0 */
            write(twin, args, &row, written, end);
            written = end;
        }
    }
    flw_raise_flags(twin, args->flags, bits);
}
