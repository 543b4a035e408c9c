/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the offline packing: how little memory a planner would need that knew the whole program
 * before it began. Does not: move blocks that are alive, align, or claim the least: finding that is
 * too hard. What it says can be reached; no allocator that sees one request at a time needs less
 * than `bound`.
 */
#ifndef FLW_TOOL_REPORT_PACKING_H
#define FLW_TOOL_REPORT_PACKING_H

#include <stdint.h>

#include "common/program.h"

/* First fit at fixed addresses, twice: by falling size, and by falling size times life; the better
 * of the two. `end_ops`: by block, where its life ends. UINT64_MAX: a bound of work was
 * reached, which is the same on every machine: about half a billion instructions. */
uint64_t flw_packing_measure(const struct flw_program *program, const uint64_t *end_ops);

#endif
