/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: requests to a language model: when they come, how long they are; from a file, or drawn from
 * what such files hold.
 */
#ifndef FLW_TRACE_GEN_GEN_REQUESTS_H
#define FLW_TRACE_GEN_GEN_REQUESTS_H

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
 * input_length, output_length, hash_ids (Mooncake); .xz, .gz and .zst too. False: nothing is held, the
 * message (FLW_TRACE_MESSAGE_BYTES) names the file and the line. */
bool flw_requests_read(const char *path, struct flw_requests *out, char *message);
bool flw_requests_read_bytes(const char *text, size_t bytes, const char *name,
                             struct flw_requests *out, char *message);
void flw_requests_finish(struct flw_requests *requests);

/* What a file's requests look like: 33 values each, those below which 0/32 .. 32/32 of them lie. */
enum flw_requests_kind {
    FLW_REQUESTS_CONVERSATION,
    FLW_REQUESTS_CODE,
    FLW_REQUESTS_LONG,
    FLW_REQUESTS_KIND_COUNT
};

/* arrival_us: the time since the one before. Prompt, output and time are independent. */
struct flw_request flw_requests_draw(struct flw_gen *gen, enum flw_requests_kind kind);

#endif
