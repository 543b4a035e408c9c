/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of silu_and_mul: out[i] = in[i] / (1 + exp(-in[i])) * in[width + i].
 */
#include "common/quantise.h"
#include "common/twin.h"

static float round_to(float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

static float element(struct flw_twin *twin, const struct flw_silu_and_mul_args *args, int64_t row,
                     int64_t i)
{
    fallow_dtype dtype = (fallow_dtype)args->dtype;
    float gate = flw_load_float(twin, "in", args->in, row * args->in_stride + i, dtype);
    float up = flw_load_float(twin, "in", args->in, row * args->in_stride + args->width + i, dtype);
    float silu = gate / (1.0f + expf(-gate));
    return (args->rounds_silu ? round_to(silu, dtype) : silu) * up;
}

static void quantise_group(struct flw_twin *twin, const struct flw_silu_and_mul_args *args,
                           int64_t row, int64_t group)
{
    float values[FLW_QUANTISE_GROUP];
    for (int64_t i = 0; i < FLW_QUANTISE_GROUP; i++) {
        values[i] = element(twin, args, row, group * FLW_QUANTISE_GROUP + i);
    }
    float scale = flw_quantise_scale(values);
    int64_t groups = args->width / FLW_QUANTISE_GROUP;
    flw_store(twin, "scales", args->scales, (row * groups + group) * 4, &scale, sizeof scale);
    for (int64_t i = 0; i < FLW_QUANTISE_GROUP; i++) {
        flw_store_float(twin, "out", args->out,
                        row * args->out_stride + group * FLW_QUANTISE_GROUP + i, FALLOW_E4M3,
                        values[i] / scale);
    }
}

void flw_twin_silu_and_mul(struct flw_twin *twin, const struct flw_silu_and_mul_args *args)
{
    for (int64_t row = 0; row < args->rows; row++) {
        int64_t expert = row / args->group_rows;
        if (args->row_counts != NULL &&
            row % args->group_rows >= flw_load_i32(twin, "row_counts", args->row_counts, expert)) {
            continue;
        }
        for (int64_t g = 0; args->quantises && g < args->width / FLW_QUANTISE_GROUP; g++) {
            quantise_group(twin, args, row, g);
        }
        for (int64_t i = 0; !args->quantises && i < args->width; i++) {
            flw_store_float(twin, "out", args->out, row * args->out_stride + i,
                            (fallow_dtype)args->dtype, element(twin, args, row, i));
        }
    }
}
