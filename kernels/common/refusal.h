/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checks of parameters before a launch, and the sentence that names the one at fault.
 * Does not: launch; know a module.
 *
 * A module copies the caller's struct, then checks field after field; the first fault is kept, the
 * checks after it do nothing, and flw_refusal_status says how it went:
 *
 *     struct flw_refusal refusal;
 *     fallow_cu_seqlens_params params;
 *     flw_refusal_begin(&refusal, kernels, "fallow_attention_cu_seqlens");
 *     flw_refusal_copy(&refusal, &params, sizeof params, caller);
 *     flw_refusal_count(&refusal, "batch", params.batch, 0, 65536);
 *     flw_refusal_input(&refusal, "lengths", params.lengths, bytes, 4);
 *     flw_refusal_output(&refusal, "cu_seqlens", params.cu_seqlens, bytes, 4);
 *     if (flw_refusal_status(&refusal) != FALLOW_OK) { ... }
 */
#ifndef FLW_KERNELS_REFUSAL_H
#define FLW_KERNELS_REFUSAL_H

#include <stdbool.h>

#include "fallow/kernels.h"

#define FLW_REFUSAL_EXTENTS 24

/* A stretch of device memory that a call touches. */
struct flw_extent {
    const char *name;
    const char *alias; /* an output: the input it may be equal to (same begin), or NULL */
    uint64_t begin, end;
    bool is_output;
};

struct flw_refusal {
    fallow_kernels *kernels; /* NULL: a query, nothing is kept */
    const char *call;
    fallow_status status;
    bool is_query; /* pointers are not looked at */
    int extent_count;
    struct flw_extent extents[FLW_REFUSAL_EXTENTS];
};

/* kernels NULL: INVALID_ARGUMENT. */
void flw_refusal_begin(struct flw_refusal *refusal, fallow_kernels *kernels, const char *call);
/* For a query. */
void flw_refusal_begin_query(struct flw_refusal *refusal, const char *call);

/* The caller's sized struct into ours: a shorter one is completed with zeros, a longer one's tail must
 * be zero (VERSION). NULL, or a size that is none: INVALID_ARGUMENT. */
void flw_refusal_copy(struct flw_refusal *refusal, void *to, size_t bytes, const void *caller);

/* Refuse for a reason of the module's own: "batch: ..." */
void flw_refusal_refuse(struct flw_refusal *refusal, fallow_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* least <= value <= most */
void flw_refusal_count(struct flw_refusal *refusal, const char *name, int64_t value, int64_t least,
                       int64_t most);
#define FLW_DTYPES_INTEGERS (1u << FALLOW_I32 | 1u << FALLOW_I64)
#define FLW_DTYPES_FLOATS   (1u << FALLOW_F16 | 1u << FALLOW_BF16 | 1u << FALLOW_F32)

/* value is one of the dtypes whose bits (1u << dtype) are set. */
void flw_refusal_dtype(struct flw_refusal *refusal, const char *name, fallow_dtype value,
                       uint32_t allowed);
/* a * b in 64 bits; refuses a product above 2^62. */
int64_t flw_refusal_product(struct flw_refusal *refusal, const char *name, int64_t a, int64_t b);

/* Bytes from the first element of rows to the end of the last one; refuses what is beyond 2^62. */
uint64_t flw_refusal_rows(struct flw_refusal *refusal, const char *name, int64_t rows,
                          int64_t stride, int64_t width, size_t element_bytes);

/* A buffer of `bytes`: not NULL (unless bytes is 0), aligned, end within 64 bits. */
void flw_refusal_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                       uint64_t bytes, size_t align_bytes);
/* The same; must overlap no other output and no input. */
void flw_refusal_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                        uint64_t bytes, size_t align_bytes);
/* They may be left out: NULL is no bytes. */
void flw_refusal_optional_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                                uint64_t bytes, size_t align_bytes);
void flw_refusal_optional_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                                 uint64_t bytes, size_t align_bytes);
/* An output, but it may begin where the input `alias` begins. Name the input first. */
void flw_refusal_output_alias(struct flw_refusal *refusal, const char *name, const void *pointer,
                              uint64_t bytes, size_t align_bytes, const char *alias);

/* Check overlaps, then: the first fault's status, or OK. */
fallow_status flw_refusal_status(struct flw_refusal *refusal);

/* Fill *out_need from ours, as long as the caller's is. */
fallow_status flw_refusal_give_need(struct flw_refusal *refusal, fallow_workspace_need *out_need,
                                    const fallow_workspace_need *need);

/* Append an output to a need. */
void flw_need_add(fallow_workspace_need *need, const char *name, uint64_t bytes, size_t align_bytes,
                  fallow_init_class init);

#endif
