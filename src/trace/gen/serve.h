/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a generated trace of a language model being served: continuous batching, chunked prefill.
 * Does not: depend on anything but its parameters: integers only, same trace everywhere.
 */
#ifndef FLW_TRACE_GEN_SERVE_H
#define FLW_TRACE_GEN_SERVE_H

#include "trace/trace/trace.h"

struct flw_serve_params {
    uint64_t seed;
    /* the model */
    uint64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
    uint64_t weight_bytes_per_value; /* 1: fp8 */
    /* the server */
    uint64_t kv_cache_bytes; /* all layers together */
    uint64_t token_budget;   /* tokens of one step */
    uint64_t requests_max;   /* running at once */
    uint64_t arrivals_max;   /* new requests of one step: 0 to this, evenly */
    uint64_t steps;
};

/* The parameters of the trace that ships with the `fallow` command. */
struct flw_serve_params flw_serve_demo(void);

/* False: no memory, nothing is held. Stream 0 computes, stream 1 copies. */
bool flw_serve_generate(const struct flw_serve_params *params, struct flw_trace **out_trace);

#endif
