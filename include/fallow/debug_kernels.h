/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules for tests and debugging: fill memory with poison, look afterwards for what was not
 * written, for NaN, for damaged guards and for ids that cannot be. kernels.h has the conventions.
 *
 *     fallow_debug_poison(kernels, &all_outputs, stream);
 *     ... the step ...
 *     fallow_debug_validate(kernels, &each_output, stream);      for each of them
 *     read the report
 *
 * Do it with both patterns: 0xff is also a legal -1, which hides a sentinel that was never written,
 * and 0x7f is a finite float. Neither sees bytes that were written wrongly;
 * fallow_debug_validate_ids does that for ids.
 */
#ifndef FALLOW_DEBUG_KERNELS_H
#define FALLOW_DEBUG_KERNELS_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What validations found; in device memory, zeroed once by the caller as flags are: counts of several
 *  calls add up. `first` is 1 + the byte offset in its data of the first one found, 0 if none. */
typedef struct fallow_validate_report {
    uint64_t poison_count; /**< elements whose bytes are all the pattern: not written, it seems */
    uint64_t poison_first; /**< see above, as all of these */
    uint64_t nan_count;    /**< elements that are NaN */
    uint64_t nan_first;    /**< the first one */
    uint64_t damage_count; /**< elements of guards that do not hold the pattern any more */
    uint64_t damage_first; /**< the first one */
    uint64_t range_count;  /**< ids below -1, or of id_count and more */
    uint64_t range_first;  /**< the first one */
    uint64_t double_count; /**< ids, not -1, that are in their row before */
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

/* ---- validate: look for poison, NaN, damage */

/**
 * Of the elements of rows [0, *valid_rows): count those whose bytes are all `pattern` (poison) and those
 * that are NaN, if dtype is a float. With `is_guard` instead those whose bytes are not all `pattern`
 * (damage). Rows from *valid_rows on are outside the extent and not read.
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
    uint8_t is_guard;               /**< 1: look for damage */
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

/* ---- validate_ids: look for ids that cannot be */

/**
 * Of the ids in rows [0, *valid_rows): count those that are neither -1 nor in [0, id_count) (range), and
 * those other than -1 that an earlier element of their row has too (double). It finds what poison
 * cannot: ids that were written, through two names of one buffer, with something else.
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
