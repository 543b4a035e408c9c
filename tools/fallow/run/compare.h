/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one command run under two patterns of poison, and whether it can be told from outside.
 */
#ifndef FLW_TOOL_COMPARE_H
#define FLW_TOOL_COMPARE_H

#include "common/launch.h"

/* Each run gets no input; what it says to standard output is kept and compared, with how it ended.
 * Standard error is left alone. FLW_EXIT_OK: no difference; FLW_EXIT_FAILED: there is one, or it
 * could not be run; the line says which. */
int flw_compare_run(const struct flw_launch *launch, const unsigned patterns[2]);

#endif
