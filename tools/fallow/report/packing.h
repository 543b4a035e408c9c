/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the offline packing: how little memory a planner needs that has the whole program in advance. The result can be
 * reached; no allocator that receives one request at a time needs less than `bound`.
 * Does not: move live blocks, align, or find the minimum, which is too hard to compute.
 */
#ifndef FLW_TOOL_REPORT_PACKING_H
#define FLW_TOOL_REPORT_PACKING_H

#include <stdint.h>

#include "common/program.h"

/* Pack by first fit at fixed addresses in two orders, by falling size and by falling size times life, and return the
 * smaller result. `lives`: by block. Returns UINT64_MAX beyond a bound of work,
 * about half a billion instructions, which is the same on every machine. */
uint64_t flw_packing_measure(const struct flw_program *program, const struct flw_life *lives);

#endif
