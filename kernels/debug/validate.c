/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of validate: checks, needs, the launch.
 * Does not: search; validate_twin.c is the definition, validate.cu the kernel. */
#include "debug/validate.h"

#include "common/library.h"
#include "common/refusal.h"

#define ALL_TYPES ((2u << FALLOW_E4M3) - 1)

/* Check shapes and types; replace zeros by defaults. Return the bytes of data. */
static uint64_t check_shape(struct flw_refusal *refusal, fallow_validate_params *params)
{
    params->pattern = params->pattern == 0 ? 0xff : params->pattern;
    params->stride = params->stride == 0 ? params->width : params->stride;
    flw_refusal_count(refusal, "rows", params->rows, 0, INT32_MAX);
    flw_refusal_count(refusal, "width", params->width, 1, (int64_t)1 << 40);
    flw_refusal_count(refusal, "stride", params->stride, params->width, (int64_t)1 << 40);
    flw_refusal_count(refusal, "is_guard", params->is_guard, 0, 1);
    flw_refusal_dtype(refusal, "dtype", params->dtype, ALL_TYPES);
    if (refusal->status != FALLOW_OK) {
        return 0;
    }
    return flw_refusal_rows(refusal, "data", params->rows, params->stride, params->width,
                            fallow_dtype_bytes(params->dtype));
}

fallow_status fallow_debug_validate_query(const fallow_validate_params *caller,
                                          fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_validate_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_debug_validate_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    (void)check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_need_add(&need, "report", sizeof(fallow_validate_report), 8, FALLOW_INIT_ONCE);
    need.read_bytes = (uint64_t)(params.rows * params.width) * fallow_dtype_bytes(params.dtype);
    need.write_bytes = sizeof(fallow_validate_report);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

/* Describe NaN: more than infinity, without the sign. */
static void describe_nan(struct flw_validate_args *args, fallow_dtype dtype)
{
    static const struct {
        uint64_t mask, above;
    } nans[] = {[FALLOW_F32] = {0x7fffffff, 0x7f800000},
                [FALLOW_F16] = {0x7fff, 0x7c00},
                [FALLOW_BF16] = {0x7fff, 0x7f80},
                [FALLOW_E4M3] = {0x7f, 0x7e}};
    args->nan_mask = nans[dtype].mask;
    args->nan_above = nans[dtype].above;
}

fallow_status fallow_debug_validate(fallow_kernels *kernels, const fallow_validate_params *caller,
                                    fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_validate_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_debug_validate");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    uint64_t bytes = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    size_t each = fallow_dtype_bytes(params.dtype);
    flw_refusal_input(&refusal, "data", params.data, bytes, each);
    flw_refusal_optional_input(&refusal, "valid_rows", params.valid_rows, 4, 4);
    flw_refusal_output(&refusal, "report", params.report, sizeof *params.report, 8);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    bool is_flat = params.stride == params.width;
    bool is_vector =
        (uintptr_t)params.data % 16 == 0 && (is_flat || (uint64_t)params.stride * each % 16 == 0);
    struct flw_validate_args args = {.data = params.data,
                                     .valid_rows = params.valid_rows,
                                     .report = params.report,
                                     .rows = params.rows,
                                     .width = params.width,
                                     .stride = params.stride,
                                     .stretch = is_flat ? params.rows * params.width : params.width,
                                     .element_bytes = (uint32_t)each,
                                     .is_flat = is_flat,
                                     .is_vector = is_vector,
                                     .is_guard = params.is_guard};
    int64_t per_block = FLW_VALIDATE_THREADS * (is_vector ? 16 / (int64_t)each : 1);
    int64_t blocks = flw_grid_blocks(args.stretch, per_block);
    for (size_t i = 0; i < each; i++) {
        args.pattern = args.pattern << 8 | params.pattern;
    }
    describe_nan(&args, params.dtype);
    args.blocks_per_stretch = (uint32_t)blocks;
    struct flw_grid grid = {.blocks_x = is_flat ? blocks : params.rows * blocks,
                            .threads = FLW_VALIDATE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_validate, grid, &args, stream);
}
