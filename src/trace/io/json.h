/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tokens of a JSON text, one after the other, out of the moving window.
 * Does not: build a tree, recurse or allocate: depth costs a bit, strings beyond the first bytes
 * are stepped over. Escapes stay as written until flw_json_unescape; what is between the quotes is not checked further.
 *
 * A kept library would have to stream; the one in C that does has had no release for a decade.
 */
#ifndef FLW_TRACE_IO_JSON_H
#define FLW_TRACE_IO_JSON_H

#include "trace/io/input.h"

#define FLW_JSON_DEPTH_MAX  256
#define FLW_JSON_TEXT_BYTES 16384 /* kept of a key, a string or a number, its final 0 included */

enum flw_json_token {
    FLW_JSON_FAILED, /* the input's message says why */
    FLW_JSON_END,    /* nothing but space follows */
    FLW_JSON_OBJECT,
    FLW_JSON_OBJECT_END,
    FLW_JSON_ARRAY,
    FLW_JSON_ARRAY_END,
    FLW_JSON_KEY, /* its value is the next token */
    FLW_JSON_STRING,
    FLW_JSON_NUMBER,
    FLW_JSON_LITERAL /* true, false, null */
};

enum flw_json_place {
    FLW_JSON_AT_VALUE,
    FLW_JSON_AT_FIRST, /* after an opening bracket */
    FLW_JSON_AT_KEY,
    FLW_JSON_AT_COMMA /* after a value */
};

/* All zero but for `input` is the beginning. */
struct flw_json {
    struct flw_input *input;
    uint64_t offset; /* of the last token */
    char text[FLW_JSON_TEXT_BYTES];
    size_t text_bytes;
    bool is_cut; /* text is only its beginning */
    uint8_t place;
    unsigned depth;
    uint64_t object_bits[FLW_JSON_DEPTH_MAX / 64]; /* of each depth: object, not array */
};

enum flw_json_token flw_json_next(struct flw_json *json);

/* Step over the rest of the value whose first token was `token`. False: failed. */
bool flw_json_skip(struct flw_json *json, enum flw_json_token token);

/* The text of a number or a string as a whole number. False: it is none, or beyond 64 bits. */
bool flw_json_get_whole(const struct flw_json *json, bool *out_is_negative, uint64_t *out);

/* The text of a string without its escapes, as UTF-8; \udcXX alone is the byte that it stands for (jsonwriter.h). What
 * is no escape, or stands for nothing, is a question mark. */
void flw_json_unescape(struct flw_json *json);

#endif
