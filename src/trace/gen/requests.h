/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: requests to a language model: when they come, how long they are; from a file, or drawn from
 * what such files hold.
 */
#ifndef FLW_TRACE_GEN_REQUESTS_H
#define FLW_TRACE_GEN_REQUESTS_H

#include "trace/gen/gen.h"

#define FLW_REQUEST_TOKENS_MAX UINT64_C(1048576)

struct flw_request {
    uint64_t arrival_us; /* since the first one, 2^50 at most; never falls */
    uint64_t prompt;     /* tokens, from 1 to FLW_REQUEST_TOKENS_MAX */
    uint64_t output;     /* the same */
    uint64_t known; /* of the prompt's: in blocks that earlier prompts began with; below `prompt` */
};

struct flw_requests {
    struct flw_request *items;
    size_t count;
    uint64_t checksum; /* of the file's unpacked bytes, FNV-1a */
};

/* "TIMESTAMP,ContextTokens,GeneratedTokens" (Azure LLM inference) or lines of JSON with timestamp,
 * input_length, output_length, hash_ids (Mooncake); .xz, .gz and .zst too. Read the file of
 * the generator's option for it, if there is one, and describe it in the trace's header. False: *out holds nothing and the
 * generator has failed. */
bool flw_requests_read(struct flw_gen *gen, struct flw_requests *out);
/* The same; the message (FLW_TRACE_MESSAGE_BYTES) has the name and the line. */
bool flw_requests_read_bytes(const char *text, size_t bytes, const char *name,
                             struct flw_requests *out, char *message);
void flw_requests_finish(struct flw_requests *requests);

/* One like those of a conversation (0), of code (1), with long prompts (2). arrival_us: the time since
 * the one before. Prompt, output and time are independent. */
struct flw_request flw_requests_draw(struct flw_gen *gen, uint64_t kind);

#endif
