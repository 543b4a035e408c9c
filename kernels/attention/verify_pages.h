/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel verify_pages and the twin.
 */
#ifndef FLW_KERNELS_VERIFY_PAGES_H
#define FLW_KERNELS_VERIFY_PAGES_H

#include "common/integer.h"
#include "common/table.h"

enum {
    FLW_VERIFY_PAGES_MOST = 1024 /* draft tokens */
};

struct flw_verify_pages_args {
    const void *lengths;         /* [batch] i32, or i64 */
    const int32_t *delta;        /* [1] or NULL */
    const int32_t *valid_count;  /* [1] or NULL */
    const void *requests;        /* [batch] i32, or i64 */
    const int32_t *req_to_token; /* [request_rows, stride] */
    const uint8_t *mask;         /* [batch draft_tokens, draft_tokens] */
    int32_t *page_table;         /* [batch draft_tokens, draft_tokens], row stride ld */
    struct flw_table_lengths out;
    int64_t request_rows, stride, ld;
    int32_t batch, draft_tokens, fill, pad_len;
    int32_t lengths_is_i64, requests_is_i64;
    int32_t is_word_mask; /* rows of the mask begin and end at 4 bytes */
};

#endif
