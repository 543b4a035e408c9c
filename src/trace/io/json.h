/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the tokens of a JSON text from the moving window.
 * Does not: build a tree, recurse or allocate: a level of depth costs a bit, and the rest of a long string is skipped.
 * Escapes stay as written until flw_json_unescape; the content of strings is not checked further.
 *
 * No library is used, because it would have to stream; the only one in C that does is unmaintained.
 */
#ifndef FLW_TRACE_IO_JSON_H
#define FLW_TRACE_IO_JSON_H

#include "trace/io/input.h"

#define FLW_JSON_DEPTH_MAX  256
#define FLW_JSON_TEXT_BYTES 16384 /* limit of a key, string or number, with the final 0 */

enum flw_json_token {
    FLW_JSON_FAILED, /* see the input's message */
    FLW_JSON_END,    /* only space is left */
    FLW_JSON_OBJECT,
    FLW_JSON_OBJECT_END,
    FLW_JSON_ARRAY,
    FLW_JSON_ARRAY_END,
    FLW_JSON_KEY, /* the value is the next token */
    FLW_JSON_STRING,
    FLW_JSON_NUMBER,
    FLW_JSON_LITERAL /* true, false, null */
};

enum flw_json_place {
    FLW_JSON_AT_VALUE, /* at the beginning, or after a key */
    FLW_JSON_AT_FIRST, /* after an opening bracket */
    FLW_JSON_AT_COMMA  /* after a value */
};

/* All zero except `input` is the beginning. */
struct flw_json {
    struct flw_input *input;
    uint64_t offset; /* of the last token */
    char text[FLW_JSON_TEXT_BYTES];
    size_t text_bytes;
    bool is_cut; /* text is cut */
    uint8_t place;
    unsigned depth;
    uint64_t object_bits[FLW_JSON_DEPTH_MAX / 64]; /* by depth: 1 object, 0 array */
};

enum flw_json_token flw_json_next(struct flw_json *json);

/* Skip the rest of the value that begins with `token`. Returns false on failure. */
bool flw_json_skip(struct flw_json *json, enum flw_json_token token);

/* Return the text of a number or a string as a whole number. Returns false if it is none, or exceeds 64 bits. */
bool flw_json_get_whole(const struct flw_json *json, bool *out_is_negative, uint64_t *out);

/* Replace the escapes of a string by UTF-8; \udcXX alone is the byte XX (jsonwriter.h). Invalid escapes become question
 * marks. */
void flw_json_unescape(struct flw_json *json);

#endif
