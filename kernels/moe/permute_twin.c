/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of permute: out[positions[t, j]] = in[t], quantised or not; padding rows 0.
 */
#include "common/quantise.h"
#include "common/twin.h"

/* 128 elements of a row, or the last ones, in the output's format. */
struct piece {
    unsigned char raw[FLW_QUANTISE_GROUP * 4];
    float scale;
};

static int64_t out_each(const struct flw_permute_args *args)
{
    return args->quantises ? 1 : (int64_t)fallow_dtype_bytes((fallow_dtype)args->dtype);
}

static void quantise(struct piece *piece, fallow_dtype dtype)
{
    float values[FLW_QUANTISE_GROUP];
    for (size_t i = 0; i < FLW_QUANTISE_GROUP; i++) {
        values[i] = flw_number_widen(piece->raw + i * fallow_dtype_bytes(dtype), dtype);
    }
    piece->scale = flw_quantise_scale(values);
    for (size_t i = 0; i < FLW_QUANTISE_GROUP; i++) {
        piece->raw[i] = flw_e4m3_narrow(values[i] / piece->scale);
    }
}

static void store_piece(struct flw_twin *twin, const struct flw_permute_args *args, int64_t row,
                        int64_t begin, int64_t count, const struct piece *piece)
{
    int64_t each = out_each(args), groups = args->width / FLW_QUANTISE_GROUP;
    flw_store(twin, "out", args->out, (row * args->out_stride + begin) * each, piece->raw,
              (size_t)(count * each));
    if (args->quantises) {
        flw_store_float(twin, "scales", args->scales, row * groups + begin / FLW_QUANTISE_GROUP,
                        FALLOW_F32, piece->scale);
    }
}

static void permute_token(struct flw_twin *twin, const struct flw_permute_args *args, int64_t token)
{
    fallow_dtype dtype = (fallow_dtype)args->dtype;
    int64_t each = (int64_t)fallow_dtype_bytes(dtype);
    for (int64_t begin = 0; begin < args->width; begin += FLW_QUANTISE_GROUP) {
        struct piece piece;
        int64_t left = args->width - begin;
        int64_t count = left < FLW_QUANTISE_GROUP ? left : FLW_QUANTISE_GROUP;
        flw_load(twin, "in", args->in, (token * args->in_stride + begin) * each, piece.raw,
                 (size_t)(count * each));
        if (args->quantises) {
            quantise(&piece, dtype);
        }
        for (int32_t j = 0; j < args->top_k; j++) {
            int64_t row = flw_load_i32(twin, "positions", args->positions, token * args->top_k + j);
            if (row >= args->row_count) {
                flw_raise_flags(twin, args->flags, FALLOW_FLAG_INDEX);
            } else if (row >= 0) {
                store_piece(twin, args, row, begin, count, &piece);
            }
        }
    }
}

static void zero_padding(struct flw_twin *twin, const struct flw_permute_args *args, int32_t expert)
{
    static const struct piece zeros;
    int64_t row = flw_load_i32(twin, "offsets", args->offsets, expert) +
                  (int64_t)flw_load_i32(twin, "counts", args->counts, expert);
    int64_t end = flw_load_i32(twin, "offsets", args->offsets, expert + 1);
    for (row = row < 0 ? 0 : row; row < end && row < args->row_count; row++) {
        for (int64_t begin = 0; begin < args->width; begin += FLW_QUANTISE_GROUP) {
            int64_t left = args->width - begin;
            store_piece(twin, args, row, begin,
                        left < FLW_QUANTISE_GROUP ? left : FLW_QUANTISE_GROUP, &zeros);
        }
    }
}

void flw_twin_permute(struct flw_twin *twin, const struct flw_permute_args *args)
{
    for (int64_t token = 0; token < args->tokens; token++) {
        permute_token(twin, args, token);
    }
    for (int32_t expert = 0; expert < args->experts; expert++) {
        zero_padding(twin, args, expert);
    }
}
