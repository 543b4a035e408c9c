// SPDX-License-Identifier: Apache-2.0
//
// restore_counters: every counter becomes 0, and nonzero ones are counted; restore_counters_twin.c
// is the definition.
//
// Bytes     4 consumers count written, and read if the count is wanted: latency, some KiB per consumer.
// Shape     one block per consumer walks the counters, so that it can count them without atomics and without a
//           word that would itself have to be 0.
// Aliasing  a thread reads a counter before it writes it, and no other.
#include "attention/restore_counters.h"
#include "common/vector.cuh"

namespace
{

template <int N> __device__ int32_t restore(int32_t *counters, int32_t count, bool counts)
{
    int32_t restored = 0;
    for (int32_t i = threadIdx.x * N; i < count; i += blockDim.x * N) {
        if (counts) {
            const flw_pack<int32_t, N> pack = flw_read<int32_t, N>(counters + i);
            for (int n = 0; n < N; n++) {
                restored += pack.at[n] != 0;
            }
        }
        flw_write<int32_t, N>(counters + i, flw_pack<int32_t, N>{});
    }
    return restored;
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_RESTORE_THREADS)
    flw_restore_counters(const flw_restore_counters_args args)
{
    __shared__ int32_t sums[FLW_WARP];
    int32_t *counters = args.counters + blockIdx.x * args.stride;
    const bool counts = args.restored != nullptr;
    const int32_t own = args.is_vector ? restore<4>(counters, args.count, counts)
                                       : restore<1>(counters, args.count, counts);
    int32_t total = 0;
    flw_block_exclusive_sum(own, sums, &total);
    if (counts && threadIdx.x == 0) {
        args.restored[blockIdx.x] = total;
    }
}
