/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of restore_counters: checks, needs, the launch.
 * Does not: compute; restore_counters_twin.c is the definition, restore_counters.cu the kernel.
 */
#include "attention/restore_counters.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

/* Check shapes; replace zeros by defaults. Return the bytes of counters. */
static uint64_t check_shape(struct flw_refusal *refusal, fallow_restore_counters_params *params)
{
    params->consumers = params->consumers == 0 ? 1 : params->consumers;
    params->stride = params->stride == 0 ? params->count : params->stride;
    flw_refusal_count(refusal, "consumers", params->consumers, 1, 65535);
    flw_refusal_count(refusal, "count", params->count, 0, 1 << 24);
    flw_refusal_count(refusal, "stride", params->stride, params->count, (int64_t)1 << 40);
    return params->count <= 0 ? 0
                              : flw_refusal_rows(refusal, "counters", params->consumers,
                                                 params->stride, params->count, 4);
}

fallow_status fallow_attention_restore_counters_query(const fallow_restore_counters_params *caller,
                                                      fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_restore_counters_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_restore_counters_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    uint64_t bytes = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t live = (uint64_t)params.consumers * (uint64_t)params.count * 4;
    flw_need_add(&need, "counters", bytes, 16, FALLOW_INIT_COUNTER);
    flw_need_add(&need, "restored", (uint64_t)params.consumers * 4, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = live;
    need.write_bytes = live + (uint64_t)params.consumers * 4;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_attention_restore_counters(fallow_kernels *kernels,
                                                const fallow_restore_counters_params *caller,
                                                fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_restore_counters_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_restore_counters");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    uint64_t bytes = check_shape(&refusal, &params);
    flw_refusal_output(&refusal, "counters", params.counters, bytes, 4);
    flw_refusal_optional_output(&refusal, "restored", params.restored,
                                (uint64_t)params.consumers * 4, 4);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_restore_counters_args args = {
        .counters = params.counters,
        .restored = params.restored,
        .stride = params.stride,
        .consumers = params.consumers,
        .count = params.count,
        .is_vector = flw_is_vector_row(params.counters, params.stride, params.count, 4)};
    struct flw_grid grid = {.blocks_x = params.consumers, .threads = FLW_RESTORE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_restore_counters, grid, &args, stream);
}
