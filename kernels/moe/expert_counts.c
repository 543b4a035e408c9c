/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of expert_counts: checks, needs, the launch.
 * Does not: compute; expert_counts_twin.c is the definition, expert_counts.cu the kernel.
 */
#include "moe/expert_counts.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/moe.h"

/* Check shapes and types; replace zeros by defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_expert_counts_params *params)
{
    params->align = params->align == 0 ? 1 : params->align;
    flw_refusal_count(refusal, "count", params->count, 0, INT32_MAX);
    flw_refusal_count(refusal, "experts", params->experts, 1, FLW_EXPERT_MOST);
    flw_refusal_count(refusal, "align", params->align, 1, 1 << 20);
    flw_refusal_count(refusal, "width", params->width, 0, 1 << 20);
    flw_refusal_count(refusal, "intermediate", params->intermediate, 0, 1 << 20);
    flw_refusal_count(refusal, "masked_positions", params->masked_positions, 0, 1);
    flw_refusal_dtype(refusal, "ids_dtype", params->ids_dtype, FLW_DTYPES_INTEGERS);
    if (refusal->status != FALLOW_OK) {
        return;
    }
    int64_t used = params->count < params->experts ? params->count : params->experts;
    int64_t most = params->count + used * (params->align - 1);
    flw_refusal_count(refusal, "count + experts x align", most, 0, INT32_MAX);
    params->rows = params->rows == 0 ? most : params->rows;
    params->masked_rows = params->masked_rows == 0 ? params->count : params->masked_rows;
    flw_refusal_count(refusal, "rows", params->rows, 0, INT32_MAX);
    flw_refusal_count(refusal, "masked_rows", params->masked_rows, 0, INT32_MAX);
    if (params->masked_positions) {
        int64_t product = flw_refusal_product(refusal, "experts x masked_rows", params->experts,
                                              params->masked_rows);
        flw_refusal_count(refusal, "experts x masked_rows", product, 0, INT32_MAX);
    }
}

/* The outputs, in the order of the parameters. */
struct output {
    const char *name;
    int32_t *at;
    uint64_t bytes;
    fallow_init_class init;
};

enum {
    OUTPUTS = 8
};

static void list_outputs(const fallow_expert_counts_params *params, struct output *outputs)
{
    uint64_t experts = (uint64_t)params->experts;
    const struct output list[OUTPUTS] = {
        {"counts", params->counts, experts * 4, FALLOW_INIT_DIRTY},
        {"offsets", params->offsets, (experts + 1) * 4, FALLOW_INIT_LEADING_ZERO},
        {"ends", params->ends, experts * 4, FALLOW_INIT_DIRTY},
        {"positions", params->positions, (uint64_t)params->count * 4, FALLOW_INIT_SENTINEL},
        {"m_indices", params->m_indices, (uint64_t)params->rows * 4, FALLOW_INIT_SENTINEL},
        {"masked_m", params->masked_m, experts * 4, FALLOW_INIT_DIRTY},
        {"problem_sizes_1", params->problem_sizes_1, experts * 12, FALLOW_INIT_DIRTY},
        {"problem_sizes_2", params->problem_sizes_2, experts * 12, FALLOW_INIT_DIRTY}};
    for (int i = 0; i < OUTPUTS; i++) {
        outputs[i] = list[i];
    }
}

fallow_status fallow_moe_expert_counts_query(const fallow_expert_counts_params *caller,
                                             fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_expert_counts_params params;
    struct output outputs[OUTPUTS];
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_expert_counts_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    list_outputs(&params, outputs);
    need.read_bytes = (uint64_t)params.count * fallow_dtype_bytes(params.ids_dtype);
    for (int i = 0; i < OUTPUTS; i++) {
        flw_need_add(&need, outputs[i].name, outputs[i].bytes, 4, outputs[i].init);
        need.write_bytes += outputs[i].bytes;
    }
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_expert_counts_params *params)
{
    struct output outputs[OUTPUTS];
    bool is_any = false;
    size_t each = fallow_dtype_bytes(params->ids_dtype);
    flw_refusal_input(refusal, "ids", params->ids, (uint64_t)params->count * each, each);
    list_outputs(params, outputs);
    for (int i = 0; i < OUTPUTS; i++) {
        is_any = is_any || outputs[i].at != NULL;
        flw_refusal_optional_output(refusal, outputs[i].name, outputs[i].at, outputs[i].bytes, 4);
    }
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
    if (!is_any) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "all outputs are NULL");
    }
}

fallow_status fallow_moe_expert_counts(fallow_kernels *kernels,
                                       const fallow_expert_counts_params *caller,
                                       fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_expert_counts_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_expert_counts");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_expert_counts_args args = {.ids = {.ids = params.ids,
                                                  .count = params.count,
                                                  .buckets = params.experts,
                                                  .map_count = params.experts,
                                                  .is_i64 = params.ids_dtype == FALLOW_I64,
                                                  .is_vector = (uintptr_t)params.ids % 16 == 0},
                                          .counts = params.counts,
                                          .offsets = params.offsets,
                                          .ends = params.ends,
                                          .positions = params.positions,
                                          .m_indices = params.m_indices,
                                          .masked_m = params.masked_m,
                                          .problem_sizes_1 = params.problem_sizes_1,
                                          .problem_sizes_2 = params.problem_sizes_2,
                                          .flags = params.flags,
                                          .rows = params.rows,
                                          .masked_rows = params.masked_rows,
                                          .align = params.align,
                                          .width = params.width,
                                          .intermediate = params.intermediate,
                                          .is_masked = params.masked_positions};
    int64_t rows = params.m_indices == NULL ? 0 : params.rows;
    struct flw_grid grid = {.blocks_x = flw_expert_cut(&args.ids, rows),
                            .threads = FLW_EXPERT_THREADS};
    if (params.m_indices == NULL && params.positions == NULL) {
        grid.blocks_x = 1; /* the first block writes everything */
    }
    grid.shared_bytes = (unsigned)flw_expert_shared_bytes(args.ids.buckets, args.ids.rank_warps);
    return flw_kernels_launch(kernels, FLW_KERNEL_expert_counts, grid, &args, stream);
}
