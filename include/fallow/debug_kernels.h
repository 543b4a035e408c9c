/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules for tests and debugging: fill memory with poison, then search for unwritten elements,
 * NaNs, damaged guards and impossible ids. kernels.h has the conventions.
 *
 *     fallow_debug_poison(kernels, &all_outputs, stream);
 *     ... the step ...
 *     fallow_debug_validate(kernels, &each_output, stream);      for each of them
 *     read the report
 *
 * Use both patterns: 0xff is also a legal -1, which hides an unwritten sentinel, and 0x7f is a finite
 * float. Neither finds wrong values; fallow_debug_validate_ids finds wrong ids.
 */
#ifndef FALLOW_DEBUG_KERNELS_H
#define FALLOW_DEBUG_KERNELS_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Findings of validations, in device memory that the caller has zeroed once. Counts of several calls add
 *  up. A `first` field is 1 + the byte offset of the first finding in its data, 0 if there is none. */
typedef struct fallow_validate_report {
    uint64_t poison_count; /**< elements with all bytes equal to the pattern, probably unwritten */
    uint64_t poison_first; /**< the first one */
    uint64_t nan_count;    /**< elements that are NaN */
    uint64_t nan_first;    /**< the first one */
    uint64_t damage_count; /**< elements of guards without the pattern */
    uint64_t damage_first; /**< the first one */
    uint64_t range_count;  /**< ids below -1, or of id_count and more */
    uint64_t range_first;  /**< the first one */
    uint64_t double_count; /**< ids other than -1 that repeat an earlier id of their row */
    uint64_t double_first; /**< the first one */
} fallow_validate_report;

/* ---- poison: fill memory with a byte */

/** memory[i] = pattern for i < bytes. */
typedef struct fallow_poison_params {
    size_t struct_size; /**< set by fallow_poison_params_init */
    void *memory;       /**< out [bytes] U8 */
    int64_t bytes;      /**< 0 to 2^42 */
    uint8_t
        pattern; /**< 0 = 0xff: NaN of every float type, -1 of integers. 0x7f: 3.39e38 of F32 and
                          BF16, NaN of F16 and E4M3, an index far out of range */
    uint8_t reserved_0[7];
} fallow_poison_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_poison_params_init(fallow_poison_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_debug_poison_query(const fallow_poison_params *params, fallow_workspace_need *out_need);

/** Any alignment. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_debug_poison(fallow_kernels *kernels,
                                                              const fallow_poison_params *params,
                                                              fallow_stream stream);

/* ---- validate: search for poison, NaN and damage */

/**
 * Search rows [0, *valid_rows). Count elements with all bytes equal to `pattern` (poison) and, if dtype is
 * a float, NaNs. With `is_guard` count elements with any other byte (damage) instead. Later rows are
 * outside the extent and are not read.
 */
typedef struct fallow_validate_params {
    size_t struct_size;             /**< set by fallow_validate_params_init */
    const void *data;               /**< [rows, width], row stride `stride`; dtype */
    const int32_t *valid_rows;      /**< [1], clamped to [0, rows]; NULL = rows */
    fallow_validate_report *report; /**< in/out [1] */
    int64_t rows;                   /**< 0 to 2^31 - 1 */
    int64_t width;                  /**< 1 to 2^40 */
    int64_t stride;                 /**< elements; 0 = width */
    fallow_dtype dtype;             /**< any */
    uint8_t pattern;                /**< 0 = 0xff */
    uint8_t is_guard;               /**< 1: search for damage */
    uint8_t reserved_0[2];
} fallow_validate_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_validate_params_init(fallow_validate_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_debug_validate_query(const fallow_validate_params *params, fallow_workspace_need *out_need);

/** Reads the data once. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_debug_validate(
    fallow_kernels *kernels, const fallow_validate_params *params, fallow_stream stream);

/* ---- validate_ids: search for impossible ids */

/**
 * Search the ids of rows [0, *valid_rows). Count ids that are neither -1 nor in [0, id_count) (range), and
 * ids other than -1 that repeat an earlier id of their row (double). This finds ids that were overwritten
 * with other data through a second name of the buffer, which poison cannot find.
 */
typedef struct fallow_validate_ids_params {
    size_t struct_size;             /**< set by fallow_validate_ids_params_init */
    const int32_t *ids;             /**< [rows, top_k], row stride `stride` */
    const int32_t *valid_rows;      /**< [1], clamped to [0, rows]; NULL = rows */
    fallow_validate_report *report; /**< in/out [1] */
    int64_t rows;                   /**< rows x top_k: 0 to 2^31 - 256 */
    int64_t stride;                 /**< elements; 0 = top_k */
    int32_t top_k;                  /**< 1 to 64 */
    int32_t id_count;               /**< 0 to 2^31 - 1 */
} fallow_validate_ids_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_validate_ids_params_init(fallow_validate_ids_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_debug_validate_ids_query(
    const fallow_validate_ids_params *params, fallow_workspace_need *out_need);

/** One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_debug_validate_ids(
    fallow_kernels *kernels, const fallow_validate_ids_params *params, fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
