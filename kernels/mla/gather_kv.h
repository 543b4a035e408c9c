/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel gather_kv and the twin.
 */
#ifndef FLW_KERNELS_GATHER_KV_H
#define FLW_KERNELS_GATHER_KV_H

#include <stdint.h>

enum {
    FLW_GATHER_THREADS = 288,  /* 4 rows of 72 packs */
    FLW_GATHER_WIDEST = 16384, /* elements of a row */
    FLW_GATHER_TOKENS = 16,    /* of a block */
    FLW_GATHER_BATCH = 4       /* loads of a thread before the first store */
};

/* FALLOW_KV_FLASHMLA and FALLOW_KV_INDEXER, in bytes. */
enum {
    FLW_FLASHMLA_ROW = 656,
    FLW_FLASHMLA_QUANTISED = 512,
    FLW_FLASHMLA_GROUP = 128, /* elements that share a scale */
    FLW_FLASHMLA_ROPE_AT = 528,
    FLW_FLASHMLA_WIDTH = 576, /* elements of the result */
    FLW_INDEXER_ROW = 128
};

struct flw_gather_kv_args {
    const void *cache;
    const int32_t *block_table;                  /* [batch, table_columns] */
    const int32_t *cu_seqlens;                   /* [batch + 1] */
    const int32_t *starts;                       /* [batch] or NULL */
    const int32_t *token_to_seq;                 /* [tokens] or NULL */
    const float *scale;                          /* [1] or NULL */
    void *dst;                                   /* [tokens, width] */
    float *dst_scales;                           /* [tokens], INDEXER */
    int32_t *flags;                              /* [1] or NULL */
    int64_t block_bytes, token_bytes, dst_bytes; /* strides */
    int64_t table_stride;                        /* elements */
    int32_t tokens, batch, block_count, table_columns, page_size, width;
    int32_t format;        /* fallow_kv_format */
    int32_t element_bytes; /* of dst */
    int32_t unit_bytes;    /* of dst, written by a thread at once */
    int32_t row_units;     /* units of a row of dst */
    int32_t columns;       /* threads that share a row, at most row_units; divides the block */
};

#endif
