// SPDX-License-Identifier: Apache-2.0
//
// validate: counts elements of only the pattern and NaNs, or guard elements that differ from the
// pattern; validate_twin.c is the definition.
//
// Bytes     rows width elements read: bandwidth.
// Shape     a thread checks 16 bytes if the data is aligned; adjacent rows are one stretch. A warp adds up the
//           findings of the threads, and accesses the report only then.
#include "common/vector.cuh"
#include "debug/report.cuh"
#include "debug/validate.h"

namespace
{

struct findings {
    flw_finding poison, nan, damage;
};

template <typename T>
__device__ void look(const flw_validate_args &args, T element, uint64_t offset, findings *found)
{
    if (args.is_guard) {
        if (element != static_cast<T>(args.pattern)) {
            found->damage.add(offset);
        }
        return;
    }
    if (element == static_cast<T>(args.pattern)) {
        found->poison.add(offset);
    }
    if ((element & static_cast<T>(args.nan_mask)) > static_cast<T>(args.nan_above)) {
        found->nan.add(offset);
    }
}

template <typename T, int N> __device__ void run(const flw_validate_args &args)
{
    const uint32_t stretch = blockIdx.x / args.blocks_per_stretch;
    const uint32_t block = blockIdx.x - stretch * args.blocks_per_stretch;
    const int64_t wanted = args.valid_rows == nullptr ? args.rows : *args.valid_rows;
    const int64_t valid = flw_clamp(wanted, 0, args.rows);
    const int64_t end = args.is_flat ? valid * args.width : stretch < valid ? args.stretch : 0;
    const int64_t i = (static_cast<int64_t>(block) * blockDim.x + threadIdx.x) * N;
    const uint64_t offset = (stretch * args.stride + i) * sizeof(T);
    const T *from = static_cast<const T *>(args.data) + stretch * args.stride + i;
    findings found;
    if (i + N <= end) {
        const flw_pack<T, N> pack = flw_read_once<T, N>(from);
        for (int n = 0; n < N; n++) {
            look(args, pack.at[n], offset + n * sizeof(T), &found);
        }
    } else {
        for (int n = 0; n < N && i + n < end; n++) {
            look(args, from[n], offset + n * sizeof(T), &found);
        }
    }
    fallow_validate_report *report = args.report;
    flw_report(&report->poison_count, &report->poison_first, found.poison);
    flw_report(&report->nan_count, &report->nan_first, found.nan);
    flw_report(&report->damage_count, &report->damage_first, found.damage);
}

template <typename T> __device__ void run_as(const flw_validate_args &args)
{
    if (args.is_vector) {
        run<T, 16 / sizeof(T)>(args);
    } else {
        run<T, 1>(args);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_VALIDATE_THREADS)
    flw_validate(const flw_validate_args args)
{
    if (args.element_bytes == 4) {
        run_as<uint32_t>(args);
    } else if (args.element_bytes == 2) {
        run_as<uint16_t>(args);
    } else if (args.element_bytes == 8) {
        run_as<uint64_t>(args);
    } else {
        run_as<uint8_t>(args);
    }
}
