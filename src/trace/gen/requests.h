/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: requests to a language model, with their arrival times and lengths: from a file, or drawn from distributions of
 * such files.
 */
#ifndef FLW_TRACE_GEN_REQUESTS_H
#define FLW_TRACE_GEN_REQUESTS_H

#include "trace/gen/gen.h"

#define FLW_REQUEST_TOKENS_MAX UINT64_C(1048576)

struct flw_request {
    uint64_t arrival_us; /* since the first request, at most 2^50; never falls */
    uint64_t prompt;     /* tokens, from 1 to FLW_REQUEST_TOKENS_MAX */
    uint64_t output;     /* tokens, in the same range */
    uint64_t
        known; /* cached prompt tokens, in blocks with which earlier prompts began; less than `prompt` */
};

struct flw_requests {
    struct flw_request *items;
    size_t count;
    uint64_t checksum; /* of the file's unpacked bytes, FNV-1a */
};

/* Read the file of the generator's option for requests, if there is one, and describe it in the trace's header.
 * Formats: "TIMESTAMP,ContextTokens,GeneratedTokens" (Azure LLM inference), or lines of JSON with timestamp,
 * input_length, output_length, hash_ids (Mooncake); .xz, .gz and .zst too. Returns false if that fails: *out holds
 * nothing, and the generator has failed. */
bool flw_requests_read(struct flw_gen *gen, struct flw_requests *out);
/* Read from memory; the message (FLW_TRACE_MESSAGE_BYTES) has the name and the line. */
bool flw_requests_read_bytes(const char *text, size_t bytes, const char *name,
                             struct flw_requests *out, char *message);
void flw_requests_finish(struct flw_requests *requests);

/* Draw a request of a kind: conversation (0), code (1), long prompts (2). arrival_us is the time since the previous
 * request. Prompt, output and time are independent. */
struct flw_request flw_requests_draw(struct flw_gen *gen, uint64_t kind);

#endif
