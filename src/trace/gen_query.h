/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the queries of a column store on a device.
 */
#ifndef FLW_TRACE_GEN_QUERY_H
#define FLW_TRACE_GEN_QUERY_H

#include "trace/gen.h"

struct flw_query_params {
    uint64_t queries;
    uint64_t rows_max;
    uint64_t device_bytes; /* spills above 80 % of it */
};

/* Adds two streams: 0 computes, 1 reads, spills and reads back. */
void flw_query_run(struct flw_gen *gen, const struct flw_query_params *params);

#endif
