/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: files that are given by mistake for a trace, told by how they begin.
 * Does not: read them.
 */
#ifndef FLW_TRACE_MISTAKEN_H
#define FLW_TRACE_MISTAKEN_H

#include "trace/input.h"

/* Return what the file is and what to give instead; NULL: it is none of those. Looks at no more than
 * FLW_INPUT_FILL_BYTES. */
const char *flw_mistaken_tell(struct flw_input *input);

#endif
