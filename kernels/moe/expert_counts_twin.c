/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of expert_counts: the number of tokens of each expert, and the position of their
 * rows. */
#include "moe/expert_ids_twin.h"

struct layout {
    int64_t counts[FLW_EXPERT_MOST];
    int64_t offsets[FLW_EXPERT_MOST + 1];
};

static void store_at(struct flw_twin *twin, const char *name, int32_t *base, int64_t i,
                     int64_t value)
{
    if (base != NULL) {
        flw_store_i32(twin, name, base, i, (int32_t)value);
    }
}

static void store_sizes(struct flw_twin *twin, const struct flw_expert_counts_args *args,
                        int64_t expert, int64_t count)
{
    store_at(twin, "problem_sizes_1", args->problem_sizes_1, expert * 3, count);
    store_at(twin, "problem_sizes_1", args->problem_sizes_1, expert * 3 + 1,
             2 * (int64_t)args->intermediate);
    store_at(twin, "problem_sizes_1", args->problem_sizes_1, expert * 3 + 2, args->width);
    store_at(twin, "problem_sizes_2", args->problem_sizes_2, expert * 3, count);
    store_at(twin, "problem_sizes_2", args->problem_sizes_2, expert * 3 + 1, args->width);
    store_at(twin, "problem_sizes_2", args->problem_sizes_2, expert * 3 + 2, args->intermediate);
}

static void store_expert(struct flw_twin *twin, const struct flw_expert_counts_args *args,
                         const struct layout *layout, int64_t e, int32_t *bits)
{
    int64_t masked = layout->counts[e];
    if (args->masked_m != NULL && masked > args->masked_rows) {
        masked = args->masked_rows;
        *bits |= FALLOW_FLAG_CLAMPED;
    }
    store_at(twin, "counts", args->counts, e, layout->counts[e]);
    store_at(twin, "offsets", args->offsets, e + 1, layout->offsets[e + 1]);
    store_at(twin, "ends", args->ends, e, layout->offsets[e] + layout->counts[e]);
    store_at(twin, "masked_m", args->masked_m, e, masked);
    store_sizes(twin, args, e, layout->counts[e]);
    for (int64_t row = layout->offsets[e]; row < layout->offsets[e + 1] && row < args->rows;
         row++) {
        store_at(twin, "m_indices", args->m_indices, row, e);
    }
}

/* Rows in ascending flat index, from each expert's begin on. */
static void store_positions(struct flw_twin *twin, const struct flw_expert_counts_args *args,
                            const struct layout *layout, int32_t *bits)
{
    int64_t ranks[FLW_EXPERT_MOST] = {0};
    for (int64_t i = 0; args->positions != NULL && i < args->ids.count; i++) {
        int32_t e = flw_twin_bucket(twin, &args->ids, i, bits);
        int64_t rank = e < 0 ? 0 : ranks[e]++;
        int64_t end = args->is_masked ? args->masked_rows : args->rows;
        int64_t row = e < 0 || args->is_masked ? rank : layout->offsets[e] + rank;
        bool is_dropped = e >= 0 && row >= end;
        *bits |= is_dropped ? FALLOW_FLAG_DROPPED : 0;
        row += args->is_masked && e >= 0 ? e * args->masked_rows : 0;
        store_at(twin, "positions", args->positions, i, e < 0 || is_dropped ? -1 : row);
    }
}

void flw_twin_expert_counts(struct flw_twin *twin, const struct flw_expert_counts_args *args)
{
    struct layout layout = {.offsets = {0}};
    int64_t experts = args->ids.buckets;
    int32_t bits = 0;
    for (int64_t i = 0; i < args->ids.count; i++) {
        int32_t e = flw_twin_bucket(twin, &args->ids, i, &bits);
        layout.counts[e < 0 ? 0 : e] += e >= 0;
    }
    for (int64_t e = 0; e < experts; e++) {
        layout.offsets[e + 1] =
            layout.offsets[e] + (layout.counts[e] + args->align - 1) / args->align * args->align;
    }
    store_at(twin, "offsets", args->offsets, 0, 0);
    for (int64_t e = 0; e < experts; e++) {
        store_expert(twin, args, &layout, e, &bits);
    }
    for (int64_t row = layout.offsets[experts]; row < args->rows; row++) {
        store_at(twin, "m_indices", args->m_indices, row, -1);
    }
    if (args->m_indices != NULL && layout.offsets[experts] > args->rows) {
        bits |= FALLOW_FLAG_DROPPED;
    }
    store_positions(twin, args, &layout, &bits);
    flw_raise_flags(twin, args->flags, bits);
}
