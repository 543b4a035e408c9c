/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of poison: checks, needs, the launch.
 * Does not: fill; poison_twin.c is the definition, poison.cu the kernel.
 */
#include "debug/poison.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/debug_kernels.h"

static void check_shape(struct flw_refusal *refusal, fallow_poison_params *params)
{
    params->pattern = params->pattern == 0 ? 0xff : params->pattern;
    flw_refusal_count(refusal, "bytes", params->bytes, 0, (int64_t)1 << 42);
}

fallow_status fallow_debug_poison_query(const fallow_poison_params *caller,
                                        fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_poison_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_debug_poison_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_need_add(&need, "memory", (uint64_t)params.bytes, 1, FALLOW_INIT_DIRTY);
    need.write_bytes = (uint64_t)params.bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_debug_poison(fallow_kernels *kernels, const fallow_poison_params *caller,
                                  fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_poison_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_debug_poison");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_refusal_output(&refusal, "memory", params.memory, (uint64_t)params.bytes, 1);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_poison_args args = {
        .memory = params.memory, .bytes = params.bytes, .pattern = params.pattern * 0x01010101u};
    /* Aligned units of 16 bytes from the first byte's to the last byte's. */
    int64_t before = (int64_t)((uintptr_t)params.memory % 16);
    int64_t packs = params.bytes == 0 ? 0 : flw_grid_blocks(before + params.bytes, 16);
    struct flw_grid grid = {.blocks_x = flw_grid_blocks(packs, FLW_POISON_THREADS),
                            .threads = FLW_POISON_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_poison, grid, &args, stream);
}
