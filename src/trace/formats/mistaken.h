/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recognising, by the first bytes, files that users mistake for a trace.
 * Does not: read them.
 */
#ifndef FLW_TRACE_FORMATS_MISTAKEN_H
#define FLW_TRACE_FORMATS_MISTAKEN_H

#include "trace/io/input.h"

/* Return the kind of the file and the file to give instead; NULL: not recognised. Reads no more than
 * FLW_INPUT_FILL_BYTES. */
const char *flw_mistaken_tell(struct flw_input *input);

#endif
