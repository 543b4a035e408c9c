/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel kv_indices and the twin.
 */
#ifndef FLW_KERNELS_KV_INDICES_H
#define FLW_KERNELS_KV_INDICES_H

#include "common/integer.h"

enum {
    FLW_KV_INDICES_THREADS = 256,
    FLW_KV_INDICES_ITEMS = 4 /* of a thread, a warp apart */
};

struct flw_kv_indices_args {
    const int32_t *cu_seqlens;   /* [batch + 1] */
    const int32_t *lengths;      /* [batch] or NULL */
    const int32_t *starts;       /* [batch] or NULL */
    const int32_t *valid_count;  /* [1] or NULL */
    const void *requests;        /* [batch] i32, or i64 */
    const int32_t *req_to_token; /* [request_rows, stride] */
    int32_t *kv_indices;         /* [capacity] */
    int32_t *flags;              /* [1] or NULL */
    int64_t request_rows, stride, capacity;
    int32_t batch, fill, requests_is_i64;
};

#endif
