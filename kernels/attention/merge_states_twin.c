/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of merge_states: out = (w_a a + w_b b) / (w_a + w_b), w = exp(lse - max of both).
 */
#include "common/twin.h"

#define CHUNK 512 /* elements of a row at a time */

/* The weights of the two sides in a row and the LSE: 1 and 0 copies, 0 and 0 is a row of 0. */
struct mix {
    float a, b, lse;
};

/* True if there are no keys: FlashAttention-2 writes +inf, others -inf. */
static float without_keys(float lse)
{
    return isinf(lse) ? -INFINITY : lse;
}

static struct mix mix_of(const struct flw_merge_states_args *args, float a, float b)
{
    if (isnan(a) || isnan(b)) {
        return (struct mix){NAN, NAN, NAN};
    }
    a = without_keys(a);
    b = without_keys(b);
    float most = fmaxf(a, b);
    if (isinf(most)) {
        return (struct mix){args->keeps_a ? 1.0f : 0.0f, 0.0f, -INFINITY};
    }
    float difference = most - fminf(a, b);
    if (difference >= (args->is_base_2 ? FLW_MERGE_FAR_2 : FLW_MERGE_FAR)) {
        return a > b ? (struct mix){1.0f, 0.0f, a} : (struct mix){0.0f, 1.0f, b};
    }
    float weight = args->is_base_2 ? exp2f(-difference) : expf(-difference);
    float lse = fmaf(log1pf(weight), args->is_base_2 ? FLW_MERGE_LOG2_OF_E : 1.0f, most);
    float less = weight / (1.0f + weight), more = 1.0f / (1.0f + weight);
    return a >= b ? (struct mix){more, less, lse} : (struct mix){less, more, lse};
}

static int64_t lse_index(const struct flw_merge_states_args *args, int64_t stride, int64_t token,
                         int64_t head)
{
    return args->lse_by_token ? token * stride + head : head * stride + token;
}

static struct mix load_mix(struct flw_twin *twin, const struct flw_merge_states_args *args,
                           int64_t context, int64_t token, int64_t head)
{
    int64_t b_at = lse_index(args, args->b_lse_stride, token, head);
    float b = flw_load_float(twin, "b_lse", args->b_lse, b_at, FALLOW_F32);
    if (token >= context) {
        return (struct mix){0.0f, 1.0f, b};
    }
    int64_t a_at = lse_index(args, args->a_lse_stride, token, head);
    float a = flw_load_float(twin, "a_lse", args->a_lse, a_at, FALLOW_F32);
    return mix_of(args, a, b);
}

/* Store one element: copied if one side has all the weight, so that the bits stay. */
static void put(const struct flw_merge_states_args *args, const struct mix *mix, float scale,
                const unsigned char *a, const unsigned char *b, unsigned char *out)
{
    fallow_dtype dtype = (fallow_dtype)args->dtype;
    const unsigned char *copied = mix->a != 0 && mix->b == 0   ? a
                                  : mix->a == 0 && mix->b != 0 ? b
                                                               : NULL;
    if (copied != NULL && !args->quantises) {
        memcpy(out, copied, fallow_dtype_bytes(dtype));
        return;
    }
    float value = copied != NULL ? flw_number_widen(copied, dtype)
                                 : fmaf(mix->a, flw_number_widen(a, dtype),
                                        mix->b * flw_number_widen(b, dtype));
    flw_number_narrow(out, args->quantises ? FALLOW_E4M3 : dtype, value / scale);
}

static void merge_row(struct flw_twin *twin, const struct flw_merge_states_args *args, int64_t row,
                      const struct mix *mix, float scale)
{
    size_t each = fallow_dtype_bytes((fallow_dtype)args->dtype);
    size_t out_each = args->quantises ? 1 : each;
    for (int64_t begin = 0; begin < args->width; begin += CHUNK) {
        unsigned char a[CHUNK * 4] = {0}, b[CHUNK * 4] = {0}, out[CHUNK * 4];
        size_t count = (size_t)(args->width - begin < CHUNK ? args->width - begin : CHUNK);
        if (mix->a != 0 && !isnan(mix->a)) {
            flw_load(twin, "a", args->a, (row * args->a_stride + begin) * (int64_t)each, a,
                     count * each);
        }
        if (mix->b != 0 && !isnan(mix->b)) {
            flw_load(twin, "b", args->b, (row * args->b_stride + begin) * (int64_t)each, b,
                     count * each);
        }
        for (size_t i = 0; i < count; i++) {
            put(args, mix, scale, a + i * each, b + i * each, out + i * out_each);
        }
        flw_store(twin, "out", args->out, (row * args->out_stride + begin) * (int64_t)out_each, out,
                  count * out_each);
    }
}

void flw_twin_merge_states(struct flw_twin *twin, const struct flw_merge_states_args *args)
{
    int64_t context = flw_load_scalar(twin, "context_tokens", args->context_tokens, args->tokens);
    float scale = args->out_scale == NULL
                      ? 1.0f
                      : flw_load_float(twin, "out_scale", args->out_scale, 0, FALLOW_F32);
    for (int64_t token = 0; token < args->tokens; token++) {
        for (int64_t head = 0; head < args->heads; head++) {
            struct mix mix = load_mix(twin, args, context, token, head);
            merge_row(twin, args, token * args->heads + head, &mix, scale);
            if (args->out_lse != NULL) {
                int64_t at = args->lse_by_token ? token * args->out_lse_stride + head
                                                : head * args->out_lse_stride + token;
                flw_store_float(twin, "out_lse", args->out_lse, at, FALLOW_F32, mix.lse);
            }
        }
    }
}
