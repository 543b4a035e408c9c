// SPDX-License-Identifier: Apache-2.0
//
// route: scores of a token's experts, the best of them, their weights; route_twin.c is the
// definition.
//
// Bytes     tokens experts elements read, 8 or 12 tokens top_k written: latency, never bandwidth.
// Shape     one warp per token: the experts are in registers over the lanes, in chunks of 4 (up to 128
//           experts) or 8, so that a chunk of bf16 is one load. A round of the choice is a pass over the lane's
//           own and two reductions over the warp: the largest key, then the lowest number with that key, which
//           is the rule for equal ones. Group scores are in shared memory, one group per lane. Warps do not
//           wait for each other; there is no barrier of the block.
// Keys      a candidate as an unsigned number of the same order; 0, below -inf's, is taken or absent.
#include <float.h>

#include "common/vector.cuh"
#include "moe/route.h"

namespace
{

constexpr int warps = FLW_ROUTE_THREADS / FLW_WARP;
constexpr uint32_t lowest_key = 0x007fffffu; // of -inf

// Convert a float to a key with the same order; no NaN.
__device__ uint32_t key_of(float value)
{
    const uint32_t bits = __float_as_uint(value == 0.0f ? 0.0f : value); // -0 equals 0
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The experts of a lane: number i of the lane is expert expert_at<CHUNK>(i, lane), ascending in i.
template <int CHUNK> __device__ int expert_at(int i, int lane)
{
    return i / CHUNK * (CHUNK * FLW_WARP) + lane * CHUNK + i % CHUNK;
}

template <typename T, int ITEMS, int CHUNK>
__device__ void load_logits(const flw_route_args &args, int64_t token, int lane, float (&x)[ITEMS])
{
    constexpr int most = 16 / sizeof(T), pack_size = most < CHUNK ? most : CHUNK;
    const T *row = static_cast<const T *>(args.logits) + token * args.logits_stride;
    if (args.is_vector) { // pack_size divides experts: a pack is whole or absent
#pragma unroll
        for (int i = 0; i < ITEMS; i += pack_size) {
            const int expert = expert_at<CHUNK>(i, lane);
            flw_pack<T, pack_size> pack;
            if (expert < args.experts) {
                pack = flw_read_once<T, pack_size>(row + expert);
            }
#pragma unroll
            for (int n = 0; n < pack_size; n++) {
                x[i + n] = expert < args.experts ? flw_to_float(pack.at[n]) : -INFINITY;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int expert = expert_at<CHUNK>(i, lane);
        x[i] = expert < args.experts ? flw_to_float(row[expert]) : -INFINITY;
    }
}

__device__ float warp_max(float value)
{
    for (int step = FLW_WARP / 2; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(FLW_ALL_LANES, value, step));
    }
    return value;
}

__device__ float warp_sum(float value)
{
    for (int step = FLW_WARP / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(FLW_ALL_LANES, value, step);
    }
    return value;
}

// Convert logits to scores; an absent expert's is 0.
template <int ITEMS> __device__ void softmax(float (&x)[ITEMS])
{
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        x[i] = isnan(x[i]) ? -INFINITY : fminf(x[i], FLT_MAX);
        largest = fmaxf(largest, x[i]);
    }
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        x[i] = largest == -INFINITY ? 0.0f : expf(x[i] - largest);
        sum += x[i];
    }
    sum = warp_sum(sum); // at least 1, or 0
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        x[i] = sum == 0.0f ? 0.0f : x[i] / sum;
    }
}

template <int ITEMS> __device__ void sigmoid(float (&x)[ITEMS])
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        x[i] = isnan(x[i]) ? 0.0f : 1.0f / (1.0f + expf(-x[i]));
    }
}

template <int ITEMS, int CHUNK>
__device__ void make_keys(const flw_route_args &args, int lane, const float (&scores)[ITEMS],
                          uint32_t (&keys)[ITEMS])
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int expert = expert_at<CHUNK>(i, lane);
        float candidate = scores[i];
        if (args.bias != nullptr && expert < args.experts) {
            candidate += __ldg(args.bias + expert);
        }
        keys[i] = expert >= args.experts ? 0 : key_of(isnan(candidate) ? -INFINITY : candidate);
    }
}

__device__ float value_of(uint32_t key)
{
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// Return the score of group `lane`, as a key. The loop begins at another expert in each lane, so
// that groups of 32 do not use the same bank; sizes that are no multiple of 32 do not need this,
// and are not slower.
__device__ uint32_t group_key(const flw_route_args &args, const uint32_t *keys, int lane)
{
    const int size = args.experts / args.groups;
    uint32_t first = lowest_key, second = lowest_key;
    if (lane >= args.groups) {
        return 0;
    }
    int at = lane % size;
    for (int i = 0; i < size; i++) {
        const uint32_t key = keys[lane * size + at];
        second = max(second, min(first, key));
        first = max(first, key);
        at = at + 1 == size ? 0 : at + 1;
    }
    if (!args.groups_by_two || size == 1) {
        return first;
    }
    const float sum = value_of(first) + value_of(second);
    return key_of(isnan(sum) ? -INFINITY : sum);
}

// Set the keys of groups that are not among the best to -inf's.
template <int ITEMS, int CHUNK>
__device__ void drop_groups(const flw_route_args &args, uint32_t *shared, int lane,
                            uint32_t (&keys)[ITEMS])
{
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int expert = expert_at<CHUNK>(i, lane);
        if (expert < args.experts) {
            shared[expert] = keys[i];
        }
    }
    __syncwarp();
    const uint32_t own = group_key(args, shared, lane);
    int better = 0;
    for (int g = 0; g < args.groups; g++) {
        const uint32_t other = __shfl_sync(FLW_ALL_LANES, own, g);
        better += other > own || (other == own && g < lane);
    }
    const uint32_t kept =
        __ballot_sync(FLW_ALL_LANES, lane < args.groups && better < args.groups_kept);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const uint32_t expert = expert_at<CHUNK>(i, lane);
        if (expert < args.experts) {
            const uint32_t group = expert * args.group_reciprocal >> FLW_ROUTE_RECIPROCAL_BITS;
            keys[i] = (kept >> group & 1) != 0 ? keys[i] : lowest_key;
        }
    }
}

// Lane j of the warp ends with choice j of the token: the expert and the score. Returns the sum of
// the scores, in the order of the choices.
template <int ITEMS, int CHUNK>
__device__ float choose(int routed, int lane, const float (&scores)[ITEMS], uint32_t (&keys)[ITEMS],
                        int *own_expert, float *own_score)
{
    float sum = 0.0f;
    for (int j = 0; j < routed; j++) {
        uint32_t best = 0;
        int best_i = 0;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (keys[i] > best) { // the lane's first of equal ones
                best = keys[i];
                best_i = i;
                score = scores[i];
            }
        }
        const uint32_t top = __reduce_max_sync(FLW_ALL_LANES, best);
        const unsigned offered = best == top ? expert_at<CHUNK>(best_i, lane) : ~0u;
        const int expert = static_cast<int>(__reduce_min_sync(FLW_ALL_LANES, offered));
        const int owner = expert / CHUNK % FLW_WARP;
        score = __shfl_sync(FLW_ALL_LANES, score, owner);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            keys[i] = lane == owner && i == best_i ? 0 : keys[i];
        }
        sum += score;
        if (lane == j) {
            *own_expert = expert;
            *own_score = score;
        }
    }
    return sum;
}

__device__ void store(const flw_route_args &args, int64_t token, int lane, int id, float weight)
{
    if (lane < args.top_k) {
        const int64_t at = token * args.top_k + lane;
        if (id >= 0 && args.physical != nullptr) {
            id = __ldg(args.physical + id);
        }
        flw_put_int(args.ids, at, args.ids_is_i64, id);
        args.weights[at] = weight;
    }
}

template <int ITEMS>
__device__ void run(const flw_route_args &args, uint32_t *shared, int64_t token, int lane)
{
    constexpr int chunk = ITEMS < 8 ? ITEMS : 8;
    const int routed = args.top_k - args.shared;
    float scores[ITEMS];
    uint32_t keys[ITEMS];
    if (args.dtype == FALLOW_BF16) {
        load_logits<__nv_bfloat16, ITEMS, chunk>(args, token, lane, scores);
    } else if (args.dtype == FALLOW_F16) {
        load_logits<__half, ITEMS, chunk>(args, token, lane, scores);
    } else {
        load_logits<float, ITEMS, chunk>(args, token, lane, scores);
    }
    if (args.is_sigmoid) {
        sigmoid<ITEMS>(scores);
    } else {
        softmax<ITEMS>(scores);
    }
    make_keys<ITEMS, chunk>(args, lane, scores, keys);
    if (args.groups > args.groups_kept) {
        drop_groups<ITEMS, chunk>(args, shared, lane, keys);
    }
    int id = args.experts + lane - routed; // of the shared experts
    float weight = 0.0f;
    const float sum = choose<ITEMS, chunk>(routed, lane, scores, keys, &id, &weight);
    if (lane >= routed) {
        weight = args.renormalises ? 1.0f : sum;
        weight = args.leaves_scale ? weight / args.scale : weight;
    } else {
        if (args.renormalises) {
            weight = sum > 0.0f ? weight / sum : 1.0f / routed;
        }
        weight = args.leaves_scale ? weight : weight * args.scale;
    }
    store(args, token, lane, id, weight);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_ROUTE_THREADS) flw_route(const flw_route_args args)
{
    __shared__ uint32_t shared[warps][FLW_ROUTE_EXPERTS];
    const int lane = threadIdx.x % FLW_WARP, warp = threadIdx.x / FLW_WARP;
    const int64_t token = static_cast<int64_t>(blockIdx.x) * warps + warp;
    if (token >= args.tokens) {
        return; // a whole warp
    }
    if (args.token_count != nullptr && token >= *args.token_count) {
        store(args, token, lane, -1, 0.0f);
    } else if (args.experts <= 128) {
        run<4>(args, shared[warp], token, lane);
    } else if (args.experts <= 256) {
        run<8>(args, shared[warp], token, lane);
    } else if (args.experts <= 512) {
        run<16>(args, shared[warp], token, lane);
    } else {
        run<32>(args, shared[warp], token, lane);
    }
}
