// SPDX-License-Identifier: Apache-2.0
//
// flashmla_schedule: parts process the blocks of all requests, each with the same budget;
// flashmla_schedule_twin.c is the definition.
//
// Bytes     4 batch read (twice), 32 parts + 4 (batch + 1) written: latency, never bandwidth.
// Shape     Put the requests on a line, nb[i] blocks and then the overhead o of each; request i ends at
//           P[i + 1] = sum over j <= i of (nb[j] + o). A part that begins at position x finishes every request
//           with P[i + 1] <= x + payload. If another one is left, the part stops at max(x', x + payload - o),
//           x' being the begin of that request: the rest is the overhead of its own split. Up to o of each
//           payload is lost at a request's end and o more is paid in the middle, so a part's begin depends on
//           the previous part and is no sum: the walk over parts is serial.
//           The walk over requests is not: the block computes P in shared memory, 1,024 requests a step, and
//           one warp holds 32 ends at a time and finds how many of them the part reaches. All threads write
//           the rows at the end.
// Aliasing  none: lengths is read again after num_splits is written.
#include "mla/flashmla_schedule.h"

#include "common/device.cuh"

namespace
{

// The begin of a part: `block` blocks of `request` are taken, by `split` parts.
struct mark {
    int32_t request, block, split;
};

// State of the walking warp, equal in every lane.
struct walk {
    int64_t limit; // end of the present part's payload
    int32_t request, part;
    int32_t split, split_sum; // of this request, of the finished ones
};

__device__ int32_t load_length(const flw_flashmla_schedule_args &args, int32_t i, int32_t *bits)
{
    const int32_t length = args.lengths[i];
    *bits |= length < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    return length < 0 ? 0 : length;
}

// Return blocks and overhead of request i, 0 for an invalid i.
__device__ int64_t load_cost(const flw_flashmla_schedule_args &args, int32_t i, int32_t valid,
                             int32_t *bits)
{
    if (i >= valid) {
        return 0;
    }
    const int32_t length = load_length(args, i, bits);
    return static_cast<int64_t>(length > 1 ? (length - 1) / args.block_size : 0) + 1 +
           args.overhead;
}

// Walk over requests [begin, end), with ends ends[i + 1 - begin]; the present part continues after
// the last. Called by one whole warp. A lane has the end of one of 32 requests; a step to the next
// part takes a vote, a count, a shuffle and a maximum, and no load.
__device__ void walk_step(const flw_flashmla_schedule_args &args, const int64_t *ends,
                          int32_t begin, int32_t end, int64_t payload, mark *marks, walk *at)
{
    const int32_t lane = threadIdx.x % FLW_WARP;
    while (at->request < end) {
        const int32_t from = at->request, next = from + lane + 1;
        const int32_t width = end - from < FLW_WARP ? end - from : FLW_WARP;
        const int64_t base = ends[from - begin];
        const int64_t own = next <= end ? ends[next - begin] : INT64_MAX;
        int32_t finished = 0;
        while (finished < width) {
            const int32_t reached = __popc(__ballot_sync(FLW_ALL_LANES, own <= at->limit));
            const int64_t ended = __shfl_sync(FLW_ALL_LANES, own, (reached - 1) & (FLW_WARP - 1));
            const int64_t begun = reached == 0 ? base : ended; // begin of the next request
            if (reached > finished) {
                if (lane >= finished && lane < reached) {
                    args.num_splits[next] = at->split_sum + at->split + 1 + lane - finished;
                }
                at->split_sum += at->split + reached - finished;
                at->split = 0;
                finished = reached;
            }
            if (finished == width) {
                break; // the part may finish more
            }
            const int64_t most = at->limit - args.overhead;
            const int64_t position = most > begun ? most : begun;
            at->split += most > begun;
            at->limit = position + payload;
            at->part++; // below args.parts: a part loses no more than the overhead that payload adds
            if (lane == 0) {
                marks[at->part] = {from + finished, static_cast<int32_t>(position - begun),
                                   at->split};
            }
        }
        at->request = from + finished;
    }
}

__device__ void write_row(const flw_flashmla_schedule_args &args, int32_t part, const mark &begin,
                          const mark &end)
{
    int32_t bits = 0;
    const int32_t last = end.block > 0 ? end.request : end.request - 1;
    int32_t end_block = end.block;
    if (end.block == 0 && last >= 0) {
        const int32_t length = load_length(args, last, &bits);
        end_block = length == 0 ? 0 : (length - 1) / args.block_size + 1;
    }
    int32_t is_first_split = begin.block != 0, is_last_split = end.block > 0;
    if (begin.request == last) {
        is_first_split = is_last_split = is_first_split | is_last_split;
    }
    int4 *row = reinterpret_cast<int4 *>(args.tile_metadata) + static_cast<int64_t>(part) * 2;
    row[0] = make_int4(begin.request, last, begin.block, end_block);
    row[1] = make_int4(begin.split, is_first_split, is_last_split, 0);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_FLASHMLA_SCHEDULE_THREADS)
    flw_flashmla_schedule(const flw_flashmla_schedule_args args)
{
    __shared__ int64_t sums[FLW_WARP];
    __shared__ int64_t ends[FLW_FLASHMLA_SCHEDULE_THREADS + 1];
    __shared__ mark marks[FLW_FLASHMLA_SCHEDULE_PARTS + 1];
    __shared__ int32_t part_count, split_sum;
    const int32_t thread = threadIdx.x, step = FLW_FLASHMLA_SCHEDULE_THREADS;
    const int32_t valid =
        static_cast<int32_t>(flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch));
    int64_t own = 0, total = 0;
    int32_t bits = 0;

    for (int32_t i = thread; i < valid; i += step) {
        own += load_cost(args, i, valid, &bits);
    }
    flw_block_exclusive_sum(own, sums, &total);
    __syncthreads(); // before `sums` is used again
    const int64_t payload = (total + args.parts - 1) / args.parts + args.overhead;

    walk at = {payload, 0, 0, 0, 0};
    int64_t carried = 0;
    for (int32_t begin = 0; begin < valid; begin += step) {
        const int64_t cost = load_cost(args, begin + thread, valid, &bits);
        const int64_t before = flw_block_exclusive_sum(cost, sums, &total);
        ends[thread] = carried + before;
        if (thread == 0) {
            ends[step] = carried + total;
        }
        carried += total;
        __syncthreads();
        if (thread < FLW_WARP) {
            const int32_t end = begin + step < valid ? begin + step : valid;
            walk_step(args, ends, begin, end, payload, marks, &at);
        }
        __syncthreads(); // before `ends` and `sums` are used again
    }

    if (thread == 0) {
        marks[0] = {0, 0, 0};
        args.num_splits[0] = 0;
        part_count = at.part;
        split_sum = at.split_sum;
    }
    __syncthreads();
    for (int32_t part = part_count + 1 + thread; part <= args.parts; part += step) {
        marks[part] = {valid, 0, 0};
    }
    for (int32_t i = valid + thread; i < args.batch; i += step) {
        args.num_splits[i + 1] = split_sum;
    }
    __syncthreads();
    for (int32_t part = thread; part < args.parts; part += step) {
        write_row(args, part, marks[part], marks[part + 1]);
    }
    flw_raise_flags(args.flags, bits);
}
