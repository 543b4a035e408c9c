/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of validate_ids: checks, needs, the launch.
 * Does not: search; validate_ids_twin.c is the definition, validate_ids.cu the kernel. */
#include "debug/validate_ids.h"

#include "common/library.h"
#include "common/refusal.h"

/* Check shapes; replace zeros by defaults. Return the bytes of ids. */
static uint64_t check_shape(struct flw_refusal *refusal, fallow_validate_ids_params *params)
{
    params->stride = params->stride == 0 ? params->top_k : params->stride;
    flw_refusal_count(refusal, "rows", params->rows, 0, INT32_MAX);
    flw_refusal_count(refusal, "top_k", params->top_k, 1, 64);
    flw_refusal_count(refusal, "id_count", params->id_count, 0, INT32_MAX);
    flw_refusal_count(refusal, "stride", params->stride, params->top_k, (int64_t)1 << 40);
    if (refusal->status != FALLOW_OK) {
        return 0;
    }
    flw_refusal_count(refusal, "rows x top_k", params->rows * params->top_k, 0, INT32_MAX - 255);
    return flw_refusal_rows(refusal, "ids", params->rows, params->stride, params->top_k, 4);
}

fallow_status fallow_debug_validate_ids_query(const fallow_validate_ids_params *caller,
                                              fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_validate_ids_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_debug_validate_ids_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    (void)check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_need_add(&need, "report", sizeof(fallow_validate_report), 8, FALLOW_INIT_ONCE);
    need.read_bytes = (uint64_t)(params.rows * params.top_k) * 4;
    need.write_bytes = sizeof(fallow_validate_report);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_debug_validate_ids(fallow_kernels *kernels,
                                        const fallow_validate_ids_params *caller,
                                        fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_validate_ids_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_debug_validate_ids");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    uint64_t bytes = check_shape(&refusal, &params);
    flw_refusal_input(&refusal, "ids", params.ids, bytes, 4);
    flw_refusal_optional_input(&refusal, "valid_rows", params.valid_rows, 4, 4);
    flw_refusal_output(&refusal, "report", params.report, sizeof *params.report, 8);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_validate_ids_args args = {.ids = params.ids,
                                         .valid_rows = params.valid_rows,
                                         .report = params.report,
                                         .stride = params.stride,
                                         .rows = (int32_t)params.rows,
                                         .top_k = params.top_k,
                                         .id_count = params.id_count};
    struct flw_grid grid = {
        .blocks_x = flw_grid_blocks(params.rows * params.top_k, FLW_VALIDATE_IDS_THREADS),
        .threads = FLW_VALIDATE_IDS_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_validate_ids, grid, &args, stream);
}
