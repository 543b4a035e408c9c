// SPDX-License-Identifier: Apache-2.0
//
// concat_kv: k[t, h] = kv[t, h] up to nope, then rope[t]; v[t, h] = kv[t, h] from nope on, then 0;
// concat_kv_twin.c is the definition.
//
// Bytes     per token and head of 128 + 64 BF16: 256 read, 384 written; with v of 192 columns 512 read,
//           768 written. Per token: 128 of rope. Bandwidth, nothing is read twice except rope, once per block.
// Shape     a block is in one token and takes some of the heads. A thread owns a column of 16 bytes of a
//           head's k and v together and loops over the heads, so that the kind of the column (copied, rope, or
//           zero) is determined once, and rope and zeros stay in a register.
// Aliasing  none: a row of k is longer than the source.
#include "common/vector.cuh"
#include "mla/concat_kv.h"

namespace
{

// A column of all heads of a token: the destination and source.
template <typename U> struct column {
    char *to;
    const char *from; // nullptr: equal for all heads
    int64_t to_head;
    U same;
};

template <typename U>
__device__ column<U> find_column(const flw_concat_kv_args &args, int64_t token, int32_t i)
{
    const char *kv = static_cast<const char *>(args.kv) + token * args.kv_token;
    const int32_t k_units = args.nope_units + args.rope_units;
    column<U> found = {};
    if (i < k_units) {
        found.to = static_cast<char *>(args.k) + token * args.k_token + i * sizeof(U);
        found.to_head = args.k_head;
        if (i < args.nope_units) {
            found.from = kv + i * sizeof(U);
        } else {
            const char *rope = static_cast<const char *>(args.k_rope) + token * args.rope_token;
            found.same = __ldg(reinterpret_cast<const U *>(rope) + (i - args.nope_units));
        }
    } else {
        const int32_t j = i - k_units;
        found.to = static_cast<char *>(args.v) + token * args.v_token + j * sizeof(U);
        found.to_head = args.v_head;
        if (j < args.value_units) {
            found.from = kv + (args.nope_units + j) * sizeof(U);
        }
    }
    return found;
}

// Move the column's heads `head`, `head + heads_at_once`, ...: all read before the first is
// written.
template <typename U>
__device__ void move_heads(const flw_concat_kv_args &args, const column<U> &column, int32_t head,
                           int32_t heads_at_once)
{
    U got[FLW_CONCAT_BATCH];
#pragma unroll
    for (int j = 0; j < FLW_CONCAT_BATCH; j++) {
        const int32_t h = head + j * heads_at_once;
        got[j] = column.same;
        if (column.from != nullptr && h < args.heads) {
            got[j] = __ldg(reinterpret_cast<const U *>(column.from + h * args.kv_head));
        }
    }
#pragma unroll
    for (int j = 0; j < FLW_CONCAT_BATCH; j++) {
        const int32_t h = head + j * heads_at_once;
        if (h < args.heads) {
            *reinterpret_cast<U *>(column.to + h * column.to_head) = got[j];
        }
    }
}

template <typename U> __device__ void run(const flw_concat_kv_args &args)
{
    const int64_t token = blockIdx.x;
    const int32_t units = args.nope_units + args.rope_units + args.v_units;
    const int32_t heads_at_once = blockDim.x / args.columns;
    const int32_t row = threadIdx.x / args.columns;
    const int32_t head = blockIdx.y * heads_at_once * FLW_CONCAT_BATCH + row;
    for (int32_t i = threadIdx.x - row * args.columns; i < units; i += args.columns) {
        move_heads(args, find_column<U>(args, token, i), head, heads_at_once);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_CONCAT_THREADS)
    flw_concat_kv(const flw_concat_kv_args args)
{
    const int32_t count = flw_scalar(args.token_count, args.tokens);
    if (static_cast<int64_t>(blockIdx.x) >= count) {
        return; // the whole block returns
    }
    if (args.unit_bytes == 16) {
        run<uint4>(args);
    } else if (args.unit_bytes == 4) {
        run<uint32_t>(args);
    } else if (args.unit_bytes == 2) {
        run<uint16_t>(args);
    } else {
        run<uint8_t>(args);
    }
}
