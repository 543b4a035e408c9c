/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases of the modules that fill memory with poison and look for it.
 */
#include "bench/kernels.h"

#include "fallow/debug_kernels.h"

FLW_KERNEL_ADAPT(debug, poison)

static void make_poison(struct flw_kernel_call *call)
{
    fallow_poison_params *params = flw_kernel_params(call, sizeof *params);
    params->bytes = flw_kernel_size(call, "bytes", 65536);
    params->memory = flw_kernel_output(call, params->bytes);
}

FLW_KERNEL_ADAPT(debug, validate)

static void make_validate(struct flw_kernel_call *call)
{
    fallow_validate_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = flw_kernel_size(call, "rows", 64);
    params->width = flw_kernel_size(call, "width", 256);
    params->dtype = FALLOW_BF16;
    params->data = flw_kernel_filled(call, params->rows * params->width * 2, FLW_KERNEL_ONES_BF16);
    params->report = flw_kernel_filled(call, (int64_t)sizeof *params->report, 0);
}

FLW_KERNEL_ADAPT(debug, validate_ids)

static void make_validate_ids(struct flw_kernel_call *call)
{
    fallow_validate_ids_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = flw_kernel_size(call, "rows", 64);
    params->top_k = (int32_t)flw_kernel_size(call, "top_k", 8);
    int64_t choice[] = {flw_kernel_size(call, "experts", 256), params->top_k};
    params->id_count = (int32_t)choice[0];
    params->ids =
        flw_kernel_integers(call, params->rows * params->top_k, flw_kernel_choice, choice);
    params->report = flw_kernel_filled(call, (int64_t)sizeof *params->report, 0);
}

const struct flw_kernel_case flw_kernel_cases_debug[] = {
    {FLW_KERNEL_ROW(poison, "1 GiB"), .sizes = {1 << 30}},
    {FLW_KERNEL_ROW(validate, "deepseek-v3, outputs"), .sizes = {65536, 7168}},
    {FLW_KERNEL_ROW(validate_ids, "deepseek-v3"), .sizes = {8192, 8, 256}},
    {.module = NULL},
};
