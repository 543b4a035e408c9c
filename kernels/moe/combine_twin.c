/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of combine: out[t] = scale * sum over j of weights[t, j] * rows[positions[t, j]].
 */
#include "common/twin.h"

static float round_if(bool rounds, float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    if (!rounds) {
        return value;
    }
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

/* The choices of a token that count, in order. */
struct choice {
    int64_t row;
    float weight;
};

static int load_choices(struct flw_twin *twin, const struct flw_combine_args *args, int64_t token,
                        struct choice *choices)
{
    int count = 0;
    for (int32_t j = 0; j < args->top_k; j++) {
        int64_t at = token * args->top_k + j;
        int64_t row =
            args->positions == NULL ? at : flw_load_i32(twin, "positions", args->positions, at);
        float weight = args->weights == NULL
                           ? 1.0f
                           : flw_load_float(twin, "weights", args->weights, at, FALLOW_F32);
        if (row >= args->row_count) {
            flw_raise_flags(twin, args->flags, FALLOW_FLAG_INDEX);
        } else if (row >= 0 && weight != 0.0f) {
            choices[count++] = (struct choice){row, weight};
        }
    }
    return count;
}

void flw_twin_combine(struct flw_twin *twin, const struct flw_combine_args *args)
{
    fallow_dtype dtype = (fallow_dtype)args->dtype;
    struct choice choices[64];
    for (int64_t token = 0; token < args->tokens; token++) {
        int count = load_choices(twin, args, token, choices);
        for (int64_t i = 0; i < args->width; i++) {
            float sum = 0.0f;
            for (int c = 0; c < count; c++) {
                float value = flw_load_float(twin, "rows", args->rows,
                                             choices[c].row * args->rows_stride + i, dtype);
                float product = round_if(args->rounds_each, choices[c].weight * value, dtype);
                sum = round_if(args->rounds_each, sum + product, dtype);
            }
            flw_store_float(twin, "out", args->out, token * args->out_stride + i, dtype,
                            args->scale * sum);
        }
    }
}
