/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of cu_seqlens: y[0] = 0, y[i+1] = y[i] + round_up(max(s[i] + delta, 0), a) for valid i,
 * then flat.
 */
#include "common/twin.h"

/* Convert a value to the output's type. */
static int64_t saturate(int64_t value, bool is_i64, int32_t *bits)
{
    if (is_i64 || value <= INT32_MAX) {
        return value;
    }
    *bits |= FALLOW_FLAG_OVERFLOW;
    return INT32_MAX;
}

/* Return max(s[i] + delta, 0), and set flags. */
static int64_t load_length(struct flw_twin *twin, const struct flw_cu_seqlens_args *args, int64_t i,
                           int64_t delta, int32_t *bits)
{
    fallow_dtype dtype = args->lengths_is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t given = flw_load_int(twin, "lengths", args->lengths, i, dtype);
    int64_t length = flw_clamp(given, -FLW_LONGEST, FLW_LONGEST) + delta;
    if (length > FLW_LONGEST || given > FLW_LONGEST) {
        *bits |= FALLOW_FLAG_OVERFLOW;
    }
    if (length < 0) {
        *bits |= FALLOW_FLAG_NEGATIVE;
    }
    return flw_clamp(length, 0, FLW_LONGEST);
}

static void scan_row(struct flw_twin *twin, const struct flw_cu_seqlens_args *args, int64_t row,
                     int64_t valid, int64_t delta)
{
    fallow_dtype dtype = args->cu_is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t width = args->batch + (args->is_exclusive ? 0 : 1);
    int64_t sum = 0, longest = 0;
    int32_t bits = 0;
    for (int64_t i = 0; i <= args->batch; i++) {
        /* Read before writing: lengths and y may be the same memory. */
        int64_t length =
            i < valid ? load_length(twin, args, row * args->batch + i, delta, &bits) : 0;
        if (i < width) {
            flw_store_int(twin, "cu_seqlens", args->cu_seqlens, row * width + i, dtype,
                          saturate(sum, args->cu_is_i64, &bits));
        }
        longest = length > longest ? length : longest;
        sum += (length + args->round_to - 1) / args->round_to * args->round_to;
    }
    if (args->total != NULL) {
        flw_store_int(twin, "total", args->total, row, dtype,
                      saturate(sum, args->cu_is_i64, &bits));
    }
    if (args->max_length != NULL) {
        flw_store_i32(twin, "max_length", args->max_length, row,
                      (int32_t)saturate(longest, false, &bits));
    }
    flw_raise_flags(twin, args->flags, bits);
}

void flw_twin_cu_seqlens(struct flw_twin *twin, const struct flw_cu_seqlens_args *args)
{
    int64_t delta = flw_load_scalar(twin, "delta", args->delta, 0);
    int64_t valid = flw_clamp(flw_load_scalar(twin, "valid_count", args->valid_count, args->batch),
                              0, args->batch);
    for (int64_t row = 0; row < args->rows; row++) {
        scan_row(twin, args, row, valid, delta);
    }
}
