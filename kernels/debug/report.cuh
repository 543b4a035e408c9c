// SPDX-License-Identifier: Apache-2.0
//
// Owns: adding the findings of a warp's threads to a report.
// Does not: search.
#ifndef FLW_KERNELS_REPORT_CUH
#define FLW_KERNELS_REPORT_CUH

#include "common/device.cuh"
#include "fallow/debug_kernels.h"

// A thread's findings: the count, and the byte offset of the first.
struct flw_finding {
    uint32_t count = 0;
    unsigned long long first = ~0ull;

    __device__ void add(uint64_t offset)
    {
        first = count == 0 ? offset : first; // offsets ascend
        count++;
    }
};

// Add a warp's findings; called by all the threads. One atomic addition per warp with findings; the
// first is the least, in any order, so that the report does not depend on the schedule.
__device__ inline void flw_report(uint64_t *count, uint64_t *first, const flw_finding &finding)
{
    const unsigned long long sum = __reduce_add_sync(FLW_ALL_LANES, finding.count);
    if (sum == 0) {
        return; // the whole warp
    }
    unsigned long long least = finding.first;
    for (int step = FLW_WARP / 2; step > 0; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(FLW_ALL_LANES, least, step);
        least = min(least, other);
    }
    if (threadIdx.x % FLW_WARP != 0) {
        return;
    }
    atomicAdd(reinterpret_cast<unsigned long long *>(count), sum);
    unsigned long long *slot = reinterpret_cast<unsigned long long *>(first);
    unsigned long long seen = 0, found = atomicCAS(slot, 0ull, least + 1);
    while (found != seen && least + 1 < found) {
        seen = found;
        found = atomicCAS(slot, seen, least + 1);
    }
}

#endif
