// SPDX-License-Identifier: Apache-2.0
//
// gather_kv: dst[t] = cache[block_table[b, position / p], position % p], position = starts[b] + t -
// cu_seqlens[b]; gather_kv_twin.c is the definition.
//
// Bytes     per token: 1,152 read and 1,152 written for 576 BF16; 576 or 656 read in the e4m3 formats:
//           bandwidth. The tables' few bytes are in the caches.
// Shape     a block owns 16 tokens of any sequences, so that any mix of lengths loads the device evenly. The
//           first 16 threads compute the tokens' addresses (a search in cu_seqlens, or token_to_seq, then one
//           entry of the block table) and store byte offsets in shared memory. Then each thread keeps the
//           column of 16 bytes of dst and moves it for every fourth token, with four loads before the first
//           store. An e4m3 column is 8 bytes read, so that both sides are contiguous over a warp.
// Bounds    a token without an address has the offset -1: nothing is read for it and zeros are written.
// Aliasing  none: dst is separate from all inputs.
#include "common/vector.cuh"
#include "fallow/mla.h"
#include "mla/gather_kv.h"

namespace
{

// Return the last b with cu_seqlens[b] <= t.
__device__ int32_t search_sequence(const flw_gather_kv_args &args, int32_t t)
{
    int32_t low = 0, high = args.batch;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        const bool is_right = __ldg(args.cu_seqlens + middle) <= t;
        low = is_right ? middle : low;
        high = is_right ? high : middle;
    }
    return low;
}

// Compute the block of row t and the token in the block; false: none.
__device__ bool find_place(const flw_gather_kv_args &args, int32_t t, int32_t *block,
                           uint32_t *in_block)
{
    const int32_t b =
        args.token_to_seq != nullptr ? __ldg(args.token_to_seq + t) : search_sequence(args, t);
    if (b < 0 || b >= args.batch) {
        return false;
    }
    const int64_t start = args.starts == nullptr ? 0 : __ldg(args.starts + b);
    const int64_t position = start + t - __ldg(args.cu_seqlens + b);
    if (position < 0 || position > UINT32_MAX) {
        return false;
    }
    const uint32_t page = static_cast<uint32_t>(args.page_size);
    const uint32_t column = static_cast<uint32_t>(position) / page;
    if (column >= static_cast<uint32_t>(args.table_columns)) {
        return false;
    }
    *in_block = static_cast<uint32_t>(position) - column * page;
    *block = __ldg(args.block_table + b * args.table_stride + column);
    return *block >= 0 && *block < args.block_count;
}

// Return the byte offset of row t in the cache, or -1; in the indexer's format also copy the scale.
__device__ int64_t resolve(const flw_gather_kv_args &args, int32_t t)
{
    const char *cache = static_cast<const char *>(args.cache);
    int32_t block = 0;
    uint32_t in_block = 0;
    const bool is_found = find_place(args, t, &block, &in_block);
    const int64_t begin = block * args.block_bytes;
    if (!is_found) {
        flw_raise_flags(args.flags, FALLOW_FLAG_INDEX);
    }
    if (args.format == FALLOW_KV_INDEXER) {
        float scale = 0.0f;
        if (is_found) {
            const int64_t at = begin + args.page_size * args.token_bytes + in_block * 4;
            scale = __ldg(reinterpret_cast<const float *>(cache + at));
        }
        args.dst_scales[t] = scale;
    }
    return is_found ? begin + in_block * args.token_bytes : -1;
}

// ---- one unit of a row of dst, by format

// Bits unchanged.
template <typename U> struct copied {
    using unit = U;
    __device__ unit operator()(const char *row, int32_t i) const
    {
        return __ldg(reinterpret_cast<const U *>(row) + i);
    }
};

__device__ uint32_t scaled_pair(uint32_t raw, float scale)
{
    const __half2_raw halves =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(raw & 0xffffu), __NV_E4M3);
    const float2 values = __half22float2(__half2(halves));
    const __nv_bfloat162 out = __floats2bfloat162_rn(values.x * scale, values.y * scale);
    return *reinterpret_cast<const uint32_t *>(&out);
}

// Convert eight e4m3 to eight BF16.
__device__ uint4 scaled_pack(const char *from, float scale)
{
    const uint2 raw = __ldg(reinterpret_cast<const uint2 *>(from));
    return make_uint4(scaled_pair(raw.x, scale), scaled_pair(raw.x >> 16, scale),
                      scaled_pair(raw.y, scale), scaled_pair(raw.y >> 16, scale));
}

struct scaled_packs {
    using unit = uint4;
    float scale;
    __device__ unit operator()(const char *row, int32_t i) const
    {
        return scaled_pack(row + i * 8, scale);
    }
};

struct scaled_elements {
    using unit = uint16_t;
    float scale;
    __device__ unit operator()(const char *row, int32_t i) const
    {
        const uint8_t raw = __ldg(reinterpret_cast<const uint8_t *>(row) + i);
        return static_cast<uint16_t>(scaled_pair(raw, scale));
    }
};

// The first 64 units are e4m3 with a scale per 16 of them, the last 8 are copied.
struct flashmla_packs {
    using unit = uint4;
    __device__ unit operator()(const char *row, int32_t i) const
    {
        constexpr int32_t quantised = FLW_FLASHMLA_QUANTISED / 8;
        if (i >= quantised) {
            const char *rope = row + FLW_FLASHMLA_ROPE_AT;
            return __ldg(reinterpret_cast<const uint4 *>(rope) + (i - quantised));
        }
        const char *scales = row + FLW_FLASHMLA_QUANTISED;
        const float scale =
            __ldg(reinterpret_cast<const float *>(scales) + i / (FLW_FLASHMLA_GROUP / 8));
        return scaled_pack(row + i * 8, scale);
    }
};

// Write unit i of this block's rows `row`, `row + rows_at_once`, ...: all read before the first is
// written.
template <typename Load>
__device__ void move_units(const flw_gather_kv_args &args, const int64_t *sources, int32_t first,
                           int32_t count, int32_t row, int32_t rows_at_once, int32_t i, Load load)
{
    using unit = typename Load::unit;
    const char *cache = static_cast<const char *>(args.cache);
    char *dst = static_cast<char *>(args.dst) + first * args.dst_bytes;
    for (; row < count; row += rows_at_once * FLW_GATHER_BATCH) {
        unit got[FLW_GATHER_BATCH];
#pragma unroll
        for (int j = 0; j < FLW_GATHER_BATCH; j++) {
            const int32_t r = row + j * rows_at_once;
            const int64_t source = r < count ? sources[r] : -1;
            got[j] = source >= 0 ? load(cache + source, i) : unit{};
        }
#pragma unroll
        for (int j = 0; j < FLW_GATHER_BATCH; j++) {
            const int32_t r = row + j * rows_at_once;
            if (r < count) {
                reinterpret_cast<unit *>(dst + r * args.dst_bytes)[i] = got[j];
            }
        }
    }
}

template <typename Load>
__device__ void move_rows(const flw_gather_kv_args &args, const int64_t *sources, int32_t first,
                          int32_t count, Load load)
{
    const int32_t columns = args.columns, rows_at_once = blockDim.x / columns;
    const int32_t row = threadIdx.x / columns;
    for (int32_t i = threadIdx.x - row * columns; i < args.row_units; i += columns) {
        move_units(args, sources, first, count, row, rows_at_once, i, load);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_GATHER_THREADS)
    flw_gather_kv(const flw_gather_kv_args args)
{
    __shared__ int64_t sources[FLW_GATHER_TOKENS];
    const int32_t total = __ldg(args.cu_seqlens + args.batch);
    const int32_t end = total < args.tokens ? total : args.tokens;
    const int32_t first = blockIdx.x * FLW_GATHER_TOKENS;
    if (blockIdx.x == 0 && threadIdx.x == 0 && total > args.tokens) {
        flw_raise_flags(args.flags, FALLOW_FLAG_DROPPED);
    }
    if (first >= end) {
        return; // the whole block returns
    }
    const int32_t count = end - first < FLW_GATHER_TOKENS ? end - first : FLW_GATHER_TOKENS;
    for (int32_t r = threadIdx.x; r < count; r += blockDim.x) {
        sources[r] = resolve(args, first + r);
    }
    __syncthreads();

    const bool is_vector = args.unit_bytes == 16;
    if (args.format == FALLOW_KV_FLASHMLA) {
        move_rows(args, sources, first, count, flashmla_packs{});
    } else if (args.format == FALLOW_KV_E4M3) {
        const float scale = args.scale == nullptr ? 1.0f : __ldg(args.scale);
        if (is_vector) {
            move_rows(args, sources, first, count, scaled_packs{scale});
        } else {
            move_rows(args, sources, first, count, scaled_elements{scale});
        }
    } else if (is_vector) {
        move_rows(args, sources, first, count, copied<uint4>{});
    } else if (args.unit_bytes == 2) {
        move_rows(args, sources, first, count, copied<uint16_t>{});
    } else {
        move_rows(args, sources, first, count, copied<uint8_t>{});
    }
}
