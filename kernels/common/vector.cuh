// SPDX-License-Identifier: Apache-2.0
//
// Owns: moving 16 bytes at a time: packs of elements, their loads and stores, and the widths that
// the host found to be possible (flw_is_vector_row in library.h).
// Does not: know the meaning of a row.
#ifndef FLW_KERNELS_VECTOR_CUH
#define FLW_KERNELS_VECTOR_CUH

#include "common/device.cuh"

// N elements that move together; N * sizeof(T) is 16 in the vector path and sizeof(T) in the scalar
// one, so that one kernel body serves both.
template <typename T, int N> struct alignas(sizeof(T) * N) flw_pack {
    T at[N];
};

// Load through the read-only path: no thread writes the bytes during the kernel.
template <typename T, int N> __device__ inline flw_pack<T, N> flw_read_once(const T *from)
{
    flw_pack<T, N> pack;
    if constexpr (sizeof(pack) == 16) {
        const uint4 raw = __ldg(reinterpret_cast<const uint4 *>(from));
        pack = *reinterpret_cast<const flw_pack<T, N> *>(&raw);
    } else {
        pack = *reinterpret_cast<const flw_pack<T, N> *>(from);
    }
    return pack;
}

// A plain load: this thread may write the bytes later.
template <typename T, int N> __device__ inline flw_pack<T, N> flw_read(const T *from)
{
    return *reinterpret_cast<const flw_pack<T, N> *>(from);
}

template <typename T, int N> __device__ inline void flw_write(T *to, const flw_pack<T, N> &pack)
{
    *reinterpret_cast<flw_pack<T, N> *>(to) = pack;
}

#endif
