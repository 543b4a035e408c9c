/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of neutral_rows: rows of requests without keys, and rows of no request, become 0, their
 * LSE -inf or +inf.
 */
#include "common/twin.h"

/* Return how many of the first `count` ascending entries are at most `value`. */
static int64_t count_at_most(struct flw_twin *twin, const int32_t *entries, int64_t count,
                             int64_t value)
{
    int64_t begin = 0, end = count;
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (flw_load_i32(twin, "cu_q", entries, middle) <= value) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

static bool has_keys(struct flw_twin *twin, const struct flw_neutral_rows_args *args,
                     int64_t request)
{
    if (args->key_counts != NULL) {
        return flw_load_i32(twin, "key_counts", args->key_counts, request) > 0;
    }
    return args->cu_k == NULL || flw_load_i32(twin, "cu_k", args->cu_k, request + 1) >
                                     flw_load_i32(twin, "cu_k", args->cu_k, request);
}

static void make_neutral(struct flw_twin *twin, const struct flw_neutral_rows_args *args,
                         int64_t token)
{
    static const unsigned char zeros[4096];
    int64_t bytes = args->segment_units * args->unit_bytes;
    for (int64_t s = 0; args->rows != NULL && s < args->segments; s++) {
        int64_t at = (token * args->segments + s) * args->segment_stride * args->unit_bytes;
        for (int64_t done = 0; done < bytes; done += (int64_t)sizeof zeros) {
            int64_t left = bytes - done;
            flw_store(twin, "rows", args->rows, at + done, zeros,
                      left < (int64_t)sizeof zeros ? (size_t)left : sizeof zeros);
        }
    }
    for (int64_t head = 0; args->lse != NULL && head < args->heads; head++) {
        int64_t at =
            args->lse_by_token ? token * args->lse_stride + head : head * args->lse_stride + token;
        flw_store_float(twin, "lse", args->lse, at, FALLOW_F32, args->lse_value);
    }
}

void flw_twin_neutral_rows(struct flw_twin *twin, const struct flw_neutral_rows_args *args)
{
    int64_t valid = flw_load_scalar(twin, "valid_count", args->valid_count, args->batch);
    valid = valid < 0 ? 0 : valid > args->batch ? args->batch : valid;
    for (int64_t token = 0; token < args->tokens; token++) {
        int64_t request = count_at_most(twin, args->cu_q, valid + 1, token) - 1;
        if (request < 0 || request >= valid || !has_keys(twin, args, request)) {
            make_neutral(twin, args, token);
        }
    }
}
