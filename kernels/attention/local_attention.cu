// SPDX-License-Identifier: Apache-2.0
//
// local_attention: a request of q queries and s keys becomes 1 + ceil((q - q_first) / A) requests
// of at most A keys, each with A / page_size pages of the table; local_attention_twin.c is the
// definition.
//
// Bytes     4 capacity A / page_size written, as many read of the block table for each virtual request, 8 batch
//           read by each block: bandwidth if capacity is large, otherwise latency.
// Shape     A block owns some virtual requests and walks over the requests to find theirs: a scan of counts and
//           queries, 256 requests a step; the thread whose request has a row of the block stores it in shared
//           memory. So every block computes the same scan, which reads 4 KiB of L2 for 512 requests, and no block
//           waits for another. One block for all would copy 16 MiB through one multiprocessor, and one block per
//           row would walk 8,192 times. Divisions by the chunk and the page are multiplications.
// Aliasing  none: other blocks still read the lengths and the table while this one writes.
#include "attention/local_attention.h"

#include "common/vector.cuh"

namespace
{

struct request {
    int32_t q, s;
    int32_t q_first; // queries in the chunk of the first query
    int32_t rows;    // chunks with queries, one if there are none
    int32_t last;    // keys of the last chunk
};

// A virtual request. request -1: without keys; the table has zeros.
struct slot {
    int32_t request, first_page;
    int32_t queries, keys; // queries: including all earlier ones
};

__device__ request load_request(const flw_local_attention_args &args, int32_t i, int32_t *bits)
{
    const int64_t q = static_cast<int64_t>(args.cu_seqlens_q[i + 1]) - args.cu_seqlens_q[i];
    const int32_t s = args.lengths[i];
    *bits |= q < 0 || s < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    if (s <= 0) {
        return {0, 0, 0, 1, 0};
    }
    *bits |= q > s ? FALLOW_FLAG_CLAMPED : 0;
    *bits |= flw_divide(s - 1, args.by_page) >= args.table_columns ? FALLOW_FLAG_INDEX : 0;
    request out;
    out.s = s;
    out.q = static_cast<int32_t>(flw_clamp(q, 0, s));
    out.last = s - flw_divide(s - 1, args.by_chunk) * args.chunk;
    const int32_t before = s - out.q;
    const int32_t room = args.chunk - (before - flw_divide(before, args.by_chunk) * args.chunk);
    out.q_first = room < out.q ? room : out.q;
    const int32_t rest = out.q - out.q_first;
    out.rows = rest == 0 ? 1 : 2 + flw_divide(rest - 1, args.by_chunk);
    return out;
}

// Chunk j of a request, with `queries_before` queries before the request.
__device__ slot slot_of(const flw_local_attention_args &args, const request &given, int32_t i,
                        int64_t j, int64_t queries_before, int32_t *bits)
{
    const int64_t reached = given.q_first + j * args.chunk, later = given.rows - 1 - j;
    slot out;
    out.request = given.s > 0 ? i : -1;
    out.first_page =
        flw_divide(static_cast<int32_t>(given.s - given.last - later * args.chunk), args.by_page);
    out.queries = flw_saturate_i32(queries_before + (reached < given.q ? reached : given.q), bits);
    out.keys = later == 0 ? given.last : args.chunk;
    return out;
}

// Fill the slots of virtual requests [first, end). Called by every thread of the block. A block
// that is_whole walks to the last request: it returns the count of all virtual requests, and the
// flags of every request.
__device__ int64_t find_slots(const flw_local_attention_args &args, slot *slots, int64_t first,
                              int64_t end, bool is_whole, int32_t *bits)
{
    __shared__ int64_t row_sums[FLW_WARP], query_sums[FLW_WARP];
    const int32_t valid =
        static_cast<int32_t>(flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch));
    int64_t rows_before = 0, queries_before = 0;
    for (int32_t begin = 0; begin < valid; begin += FLW_LOCAL_ATTENTION_THREADS) {
        const int32_t i = begin + threadIdx.x;
        request given = {0, 0, 0, 0, 0};
        if (i < valid) {
            given = load_request(args, i, bits);
        }
        int64_t rows, queries;
        const int64_t from =
            rows_before + flw_block_exclusive_sum<int64_t>(given.rows, row_sums, &rows);
        const int64_t asked =
            queries_before + flw_block_exclusive_sum<int64_t>(given.q, query_sums, &queries);
        const int64_t to = from + given.rows < end ? from + given.rows : end;
        for (int64_t row = from > first ? from : first; row < to; row++) {
            slots[row - first] = slot_of(args, given, i, row - from, asked, bits);
        }
        rows_before += rows;
        queries_before += queries;
        __syncthreads(); // before `sums` is used again
        if (!is_whole && rows_before >= end) {
            break; // equal in every thread
        }
    }
    const int64_t row = first + threadIdx.x;
    if (row < end && row >= rows_before) {
        slots[threadIdx.x] = {-1, 0, flw_saturate_i32(queries_before, bits), 0};
    }
    return rows_before;
}

// Write columns c to c + N - 1 of a virtual request's table.
template <int N>
__device__ flw_pack<int32_t, N> load_pages(const flw_local_attention_args &args, const slot &from,
                                           int32_t c)
{
    flw_pack<int32_t, N> pack = {};
    if (from.request < 0) {
        return pack;
    }
    const int32_t *source = args.block_table + from.request * args.table_stride;
    const int64_t page = static_cast<int64_t>(from.first_page) + c;
    if (page + N <= args.table_columns) {
        return flw_read_once<int32_t, N>(source + page);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int64_t inside = page + k < args.table_columns ? page + k : args.table_columns - 1;
        pack.at[k] = __ldg(source + inside);
    }
    return pack;
}

// N columns a thread; a thread keeps the column.
template <int N>
__device__ void write_tables(const flw_local_attention_args &args, const slot *slots, int64_t first,
                             int32_t count)
{
    const int32_t lane = threadIdx.x / args.tile_columns;
    const int32_t column = threadIdx.x - lane * args.tile_columns;
    if (lane >= args.tile_rows) {
        return;
    }
    for (int32_t at = lane; at < count; at += args.tile_rows) {
        const slot from = slots[at];
        int32_t *to = args.local_table + (first + at) * args.columns;
        for (int64_t c = static_cast<int64_t>(column) * N; c < args.columns;
             c += args.tile_columns * N) {
            flw_write<int32_t, N>(to + c, load_pages<N>(args, from, static_cast<int32_t>(c)));
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_LOCAL_ATTENTION_THREADS)
    flw_local_attention(const flw_local_attention_args args)
{
    __shared__ slot slots[FLW_LOCAL_ATTENTION_ROWS];
    const int64_t first = static_cast<int64_t>(blockIdx.x) * args.rows_per_block;
    const int64_t beyond = first + args.rows_per_block;
    const int64_t end = beyond < args.capacity ? beyond : args.capacity;
    const int32_t count = static_cast<int32_t>(end - first);
    const bool is_whole = blockIdx.x == 0;
    int32_t bits = 0;

    const int64_t rows = find_slots(args, slots, first, end, is_whole, &bits);
    __syncthreads();
    if (threadIdx.x < count) {
        args.cu_q_local[first + threadIdx.x + 1] = slots[threadIdx.x].queries;
        args.seqused_k[first + threadIdx.x] = slots[threadIdx.x].keys;
    }
    if (is_whole && threadIdx.x == 0) {
        args.cu_q_local[0] = 0;
        if (args.virtual_count != nullptr) {
            *args.virtual_count = static_cast<int32_t>(rows < args.capacity ? rows : args.capacity);
        }
        bits |= rows > args.capacity ? FALLOW_FLAG_DROPPED : 0;
    }
    flw_raise_flags(args.flags, bits);
    if (args.is_vector) {
        write_tables<4>(args, slots, first, count);
    } else {
        write_tables<1>(args, slots, first, count);
    }
}
