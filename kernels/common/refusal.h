/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checks of parameters before a launch, and the message that names the wrong one.
 * Does not: launch; know a module.
 *
 * A module copies the caller's struct, then checks field after field; the first fault is kept, the
 * checks after it do nothing, and flw_refusal_status returns the result:
 *
 *     struct flw_refusal refusal;
 *     fallow_cu_seqlens_params params;
 *     flw_refusal_begin(&refusal, kernels, "fallow_attention_cu_seqlens");
 *     flw_refusal_copy(&refusal, &params, sizeof params, caller);
 *     flw_refusal_count(&refusal, "batch", params.batch, 0, 65536);
 *     flw_refusal_input(&refusal, "lengths", params.lengths, bytes, 4);
 *     flw_refusal_output(&refusal, "cu_seqlens", params.cu_seqlens, bytes, 4);
 *     if (flw_refusal_status(&refusal) != FALLOW_OK) { ... } */
#ifndef FLW_KERNELS_REFUSAL_H
#define FLW_KERNELS_REFUSAL_H

#include <stdbool.h>

#include "fallow/kernels.h"

#define FLW_REFUSAL_EXTENTS 24

/* A range of device memory that a call accesses. */
struct flw_extent {
    const char *name;
    const char *alias; /* of an output: the input that it may equal (same begin), or NULL */
    uint64_t begin, end;
    bool is_output;
};

struct flw_refusal {
    const char *call;
    fallow_status status;
    bool is_query; /* pointers are ignored */
    int extent_count;
    struct flw_extent extents[FLW_REFUSAL_EXTENTS];
};

/* kernels NULL: INVALID_ARGUMENT. */
void flw_refusal_begin(struct flw_refusal *refusal, fallow_kernels *kernels, const char *call);
/* For a query. */
void flw_refusal_begin_query(struct flw_refusal *refusal, const char *call);

/* Copy the caller's sized struct into ours: a shorter one is completed with zeros, a longer one's
 * tail must be zero (VERSION). NULL or an invalid size: INVALID_ARGUMENT. */
void flw_refusal_copy(struct flw_refusal *refusal, void *to, size_t bytes, const void *caller);

/* Refuse for a reason of the module's own: "batch: ..." */
void flw_refusal_refuse(struct flw_refusal *refusal, fallow_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Require least <= value <= most. */
void flw_refusal_count(struct flw_refusal *refusal, const char *name, int64_t value, int64_t least,
                       int64_t most);
#define FLW_DTYPES_INTEGERS (1u << FALLOW_I32 | 1u << FALLOW_I64)
#define FLW_DTYPES_FLOATS   (1u << FALLOW_F16 | 1u << FALLOW_BF16 | 1u << FALLOW_F32)

/* Require one of the dtypes with a set bit (1u << dtype). */
void flw_refusal_dtype(struct flw_refusal *refusal, const char *name, fallow_dtype value,
                       uint32_t allowed);
/* Require out_dtype to be dtype, for which 0 stands, or E4M3 if dtype is a float's. No dtype is I32, which
 * is 0. */
void flw_refusal_out_dtype(struct flw_refusal *refusal, fallow_dtype *out_dtype,
                           fallow_dtype dtype);
/* Return a * b in 64 bits; refuse a product above 2^62. */
int64_t flw_refusal_product(struct flw_refusal *refusal, const char *name, int64_t a, int64_t b);

/* Return the bytes from the first element of rows to the end of the last one; refuse more than
 * 2^62. */
uint64_t flw_refusal_rows(struct flw_refusal *refusal, const char *name, int64_t rows,
                          int64_t stride, int64_t width, size_t element_bytes);

/* Require a buffer of `bytes`: not NULL (unless bytes is 0), aligned, with an end
 * within 64 bits. */
void flw_refusal_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                       uint64_t bytes, size_t align_bytes);
/* The same; it must overlap no other output and no input. */
void flw_refusal_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                        uint64_t bytes, size_t align_bytes);
/* The same, optional: NULL has no bytes. */
void flw_refusal_optional_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                                uint64_t bytes, size_t align_bytes);
void flw_refusal_optional_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                                 uint64_t bytes, size_t align_bytes);
/* An output that may begin where the input `alias` begins. Call for the input first. */
void flw_refusal_output_alias(struct flw_refusal *refusal, const char *name, const void *pointer,
                              uint64_t bytes, size_t align_bytes, const char *alias);

/* Check overlaps, then return the first fault's status, or OK. */
fallow_status flw_refusal_status(struct flw_refusal *refusal);

/* Copy our need to *out_need, up to the caller's size. */
fallow_status flw_refusal_give_need(struct flw_refusal *refusal, fallow_workspace_need *out_need,
                                    const fallow_workspace_need *need);

/* Append an output to a need. */
void flw_need_add(fallow_workspace_need *need, const char *name, uint64_t bytes, size_t align_bytes,
                  fallow_init_class init);

#endif
