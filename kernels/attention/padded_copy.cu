// SPDX-License-Identifier: Apache-2.0
//
// padded_copy: the first n rows are copied, the others hold a value; padded_copy_twin.c is the
// definition.
//
// Bytes     rows width elements written, n width read: latency for vectors of a batch.
// Shape     a thread moves 16 bytes if both sides are aligned; adjacent rows are one stretch, so that a vector
//           of a batch is one block. Only the pack that contains n, and the last one, are moved element by
//           element.
// Aliasing  a thread reads the elements that it then writes, and no others: src may be dst.
#include "attention/padded_copy.h"
#include "common/vector.cuh"

namespace
{

template <typename T, int N> __device__ void run(const flw_padded_copy_args &args)
{
    const uint32_t stretch = blockIdx.x / args.blocks_per_stretch;
    const uint32_t block = blockIdx.x - stretch * args.blocks_per_stretch;
    const int64_t i = (static_cast<int64_t>(block) * blockDim.x + threadIdx.x) * N;
    if (i >= args.stretch) {
        return;
    }
    const int64_t wanted = args.valid_count == nullptr ? args.src_rows : *args.valid_count;
    const int64_t valid = flw_clamp(wanted, 0, args.src_rows);
    const int64_t copied = args.is_flat ? valid * args.width : stretch < valid ? args.stretch : 0;
    const T *from = static_cast<const T *>(args.src) + stretch * args.src_stride + i;
    T *to = static_cast<T *>(args.dst) + stretch * args.dst_stride + i;
    const T value = static_cast<T>(args.value);
    const bool is_copy = i + N <= copied;
    if (!is_copy && (i < copied || i + N > args.stretch)) {
        for (int n = 0; n < N && i + n < args.stretch; n++) {
            to[n] = i + n < copied ? from[n] : value;
        }
        return;
    }
    flw_pack<T, N> pack;
    for (int n = 0; n < N; n++) {
        pack.at[n] = value;
    }
    if (is_copy) {
        pack = flw_read<T, N>(from);
    }
    if constexpr (N > 1) { // by intrinsic: a plain store of either pack is split into elements
        __stwb(reinterpret_cast<uint4 *>(to), *reinterpret_cast<const uint4 *>(&pack));
    } else {
        *to = pack.at[0];
    }
}

template <typename T> __device__ void run_as(const flw_padded_copy_args &args)
{
    if (args.is_vector) {
        run<T, 16 / sizeof(T)>(args);
    } else {
        run<T, 1>(args);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_PADDED_COPY_THREADS)
    flw_padded_copy(const flw_padded_copy_args args)
{
    if (args.is_i64) {
        run_as<int64_t>(args);
    } else {
        run_as<int32_t>(args);
    }
}
