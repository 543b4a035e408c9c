/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel route and the twin.
 */
#ifndef FLW_KERNELS_ROUTE_H
#define FLW_KERNELS_ROUTE_H

#include <stdint.h>

enum {
    FLW_ROUTE_THREADS = 128, /* one warp per token */
    FLW_ROUTE_EXPERTS = 1024,
    FLW_ROUTE_TOP_K = 32,
    FLW_ROUTE_GROUPS = 32,
    FLW_ROUTE_RECIPROCAL_BITS = 22
};

struct flw_route_args {
    const void *logits;         /* [tokens, experts] */
    const float *bias;          /* [experts] or NULL */
    const int32_t *token_count; /* [1] or NULL */
    const int32_t *physical;    /* [experts + shared] or NULL */
    float *weights;             /* [tokens, top_k] */
    void *ids;                  /* [tokens, top_k]; i32, or i64 */
    int64_t tokens, logits_stride;
    int32_t experts, top_k, shared;
    int32_t groups, groups_kept;
    uint32_t group_reciprocal; /* ceil(2^22 / group): e / group = e * it >> 22 for e < 1,024 */
    float scale;
    int32_t dtype; /* fallow_dtype */
    int32_t ids_is_i64, is_sigmoid, is_vector;
    int32_t groups_by_two, renormalises, leaves_scale;
};

#endif
