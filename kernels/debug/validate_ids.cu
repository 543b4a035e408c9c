// SPDX-License-Identifier: Apache-2.0
//
// validate_ids: ids out of range, and ids that repeat an earlier one of their row;
// validate_ids_twin.c is the definition.
//
// Bytes     4 rows top_k read: latency; a row's earlier ids are in the first level cache.
// Shape     one thread per id, which compares it with those before it in the row: top_k is small.
#include "debug/report.cuh"
#include "debug/validate_ids.h"

extern "C" __global__ void __launch_bounds__(FLW_VALIDATE_IDS_THREADS)
    flw_validate_ids(const flw_validate_ids_args args)
{
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t row = at / static_cast<uint32_t>(args.top_k);
    const uint32_t j = at - row * static_cast<uint32_t>(args.top_k);
    const int64_t valid = flw_clamp(flw_scalar(args.valid_rows, args.rows), 0, args.rows);
    flw_finding range, twice;
    if (row < valid) {
        const int32_t *ids = args.ids + row * args.stride;
        const int32_t id = ids[j];
        bool is_double = false;
        for (uint32_t i = 0; i < j && id != -1; i++) {
            is_double |= ids[i] == id;
        }
        if (id < -1 || id >= args.id_count) {
            range.add((row * args.stride + j) * 4);
        }
        if (is_double) {
            twice.add((row * args.stride + j) * 4);
        }
    }
    flw_report(&args.report->range_count, &args.report->range_first, range);
    flw_report(&args.report->double_count, &args.report->double_first, twice);
}
