/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the rule checker: all accesses, their order, and whether the program established that
 * order.
 * Does not: change anything: a world without it behaves the same.
 * Synchronization: the world's lock. */
#ifndef FLW_SIMCUDA_CHECK_H
#define FLW_SIMCUDA_CHECK_H

#include "simcuda/order.h"

static inline bool flw_check_is_on(void)
{
    return flw_world.config.check != 0;
}

/* Internal flag of a range: the operation allocates or frees the range itself. */
#define FLW_RANGE_OWNERSHIP (1u << 31)
/* Names of those operations; after a free nothing may access the range. */
extern const char flw_check_allocates[], flw_check_frees[];

/* Check one access of one operation. CUDA_ERROR_ILLEGAL_ADDRESS if no access is permitted. */
CUresult flw_check_access(struct flw_stream *stream, const char *what, uint64_t sequence,
                          const struct flw_order_clock *clock, const struct flw_sim_range *range);
/* [begin, end) is released or changes owners: unfinished operations on it are violations. Then
 * forget the accesses. */
void flw_check_takes_away(uint64_t begin, uint64_t end, const char *by);
/* Forget the accesses of [begin, end). */
void flw_check_forget(uint64_t begin, uint64_t end);
void flw_check_finish(void);
__attribute__((format(printf, 1, 2))) void flw_check_violation(const char *format, ...);
/* Print the violations to stderr, or that there were none. */
void flw_report_print(void);
void flw_report_finish(void);
/* Write " (region 'lse' + 16)" into text, or "". */
void flw_check_describe(uint64_t address, char *text, size_t bytes);

#endif
