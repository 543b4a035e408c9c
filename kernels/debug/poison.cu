// SPDX-License-Identifier: Apache-2.0
//
// poison: every byte is the pattern; poison_twin.c is the definition.
//
// Bytes     `bytes` written: bandwidth.
// Shape     a thread has one aligned unit of 16 bytes, whatever the memory's own alignment; the first and the
//           last unit may be only partly in the memory, and are written byte by byte.
#include "common/device.cuh"
#include "debug/poison.h"

extern "C" __global__ void __launch_bounds__(FLW_POISON_THREADS)
    flw_poison(const flw_poison_args args)
{
    unsigned char *memory = static_cast<unsigned char *>(args.memory);
    const int64_t before = reinterpret_cast<uintptr_t>(memory) % 16;
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 16 - before;
    if (at >= 0 && at + 16 <= args.bytes) {
        *reinterpret_cast<uint4 *>(memory + at) =
            make_uint4(args.pattern, args.pattern, args.pattern, args.pattern);
        return;
    }
    for (int64_t i = at < 0 ? 0 : at; i < at + 16 && i < args.bytes; i++) {
        memory[i] = static_cast<unsigned char>(args.pattern);
    }
}
