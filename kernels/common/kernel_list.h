/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of kernels. X(name) means the device function flw_<name> in <name>.cu, the twin
 * flw_twin_<name>, and the struct flw_<name>_args that both get by value.
 * Does not: map public calls to kernels. */
#ifndef FLW_KERNELS_KERNEL_LIST_H
#define FLW_KERNELS_KERNEL_LIST_H

#include "attention/concat_pages.h"
#include "attention/cu_seqlens.h"
#include "attention/fa3_schedule.h"
#include "attention/kv_indices.h"
#include "attention/local_attention.h"
#include "attention/merge_states.h"
#include "attention/neutral_rows.h"
#include "attention/padded_copy.h"
#include "attention/page_table.h"
#include "attention/restore_counters.h"
#include "attention/scale_padding.h"
#include "attention/verify_pages.h"
#include "debug/poison.h"
#include "debug/validate.h"
#include "debug/validate_ids.h"
#include "mla/chunk_plan.h"
#include "mla/concat_kv.h"
#include "mla/flashmla_schedule.h"
#include "mla/gather_kv.h"
#include "moe/align_blocks.h"
#include "moe/combine.h"
#include "moe/expert_counts.h"
#include "moe/permute.h"
#include "moe/route.h"
#include "moe/silu_and_mul.h"

/* clang-format off */
#define FLW_KERNEL_LIST(X) \
    X(poison) \
    X(validate) \
    X(validate_ids) \
    X(cu_seqlens) \
    X(merge_states) \
    X(neutral_rows) \
    X(padded_copy) \
    X(page_table) \
    X(verify_pages) \
    X(concat_pages) \
    X(kv_indices) \
    X(fa3_schedule) \
    X(restore_counters) \
    X(scale_padding) \
    X(local_attention) \
    X(chunk_plan) \
    X(concat_kv) \
    X(flashmla_schedule) \
    X(gather_kv) \
    X(combine) \
    X(route) \
    X(silu_and_mul) \
    X(align_blocks) \
    X(expert_counts) \
    X(permute)
/* clang-format on */

#endif
