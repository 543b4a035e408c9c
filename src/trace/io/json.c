/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the grammar of JSON.
 */
#include "trace/io/json.h"

#include <stdlib.h>
#include <string.h>

/* Fail because of `c`, the next byte; -1: the text ends. */
static enum flw_json_token fail(struct flw_json *json, int c, const char *what)
{
    if (c < 0) {
        flw_input_fail_short(json->input, "the JSON text");
    } else {
        flw_input_fail(json->input, flw_input_offset(json->input), "not JSON: %s", what);
    }
    return FLW_JSON_FAILED;
}

/* Return the next byte without consuming it; -1: none. */
static inline int peek(struct flw_json *json)
{
    struct flw_input *input = json->input;
    return input->at < input->end || flw_input_fill(input, 1) ? *input->at : -1;
}

/* Begin a token after the space: return its first byte. */
static int begin_token(struct flw_json *json)
{
    int c = peek(json);
    while (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        json->input->at++;
        c = peek(json);
    }
    json->offset = flw_input_offset(json->input);
    return c;
}

static inline bool is_in_object(const struct flw_json *json)
{
    unsigned level = json->depth - 1;
    return (json->object_bits[level / 64] >> (level % 64) & 1) != 0;
}

static void keep(struct flw_json *json, const unsigned char *bytes, size_t count)
{
    size_t room = FLW_JSON_TEXT_BYTES - 1 - json->text_bytes;
    json->is_cut |= count > room;
    count = count < room ? count : room;
    memcpy(json->text + json->text_bytes, bytes, count);
    json->text_bytes += count;
    json->text[json->text_bytes] = '\0';
}

static void keep_nothing(struct flw_json *json)
{
    json->text_bytes = 0;
    json->text[0] = '\0';
    json->is_cut = false;
}

/* Read a string. The input is at the quote. Returns `token`, or that reading failed. */
static enum flw_json_token take_string(struct flw_json *json, enum flw_json_token token)
{
    struct flw_input *input = json->input;
    keep_nothing(json);
    input->at++;
    while (peek(json) >= 0) {
        const unsigned char *begin = input->at, *at = begin;
        while (at < input->end && *at != '"' && *at != '\\') {
            at++;
        }
        keep(json, begin, (size_t)(at - begin));
        input->at = at;
        if (at < input->end && *at == '"') {
            input->at++;
            return token;
        }
        if (at < input->end) {
            if (!flw_input_fill(input, 2)) {
                break;
            }
            keep(json, input->at, 2);
            input->at += 2;
        }
    }
    return fail(json, -1, "");
}

static enum flw_json_token take_key(struct flw_json *json)
{
    if (take_string(json, FLW_JSON_KEY) == FLW_JSON_FAILED) {
        return FLW_JSON_FAILED;
    }
    uint64_t offset = json->offset;
    int c = begin_token(json);
    json->offset = offset;
    if (c != ':') {
        return fail(json, c, "\":\" expected after a key");
    }
    json->input->at++;
    json->place = FLW_JSON_AT_VALUE;
    return FLW_JSON_KEY;
}

static enum flw_json_token take_number(struct flw_json *json)
{
    struct flw_input *input = json->input;
    keep_nothing(json);
    do {
        const unsigned char *at = input->at;
        while (at < input->end && ((*at >= '0' && *at <= '9') || *at == '-' || *at == '+' ||
                                   *at == '.' || *at == 'e' || *at == 'E')) {
            at++;
        }
        keep(json, input->at, (size_t)(at - input->at));
        input->at = at;
    } while (input->at == input->end && flw_input_fill(input, 1));
    char last = json->text[json->text_bytes - 1];
    return json->is_cut || (last >= '0' && last <= '9') ? FLW_JSON_NUMBER
                                                        : fail(json, 0, "a number without digits");
}

static enum flw_json_token take_literal(struct flw_json *json)
{
    static const char *const literals[] = {"true", "false", "null"};
    keep_nothing(json);
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        size_t count = strlen(literals[i]);
        if (flw_input_fill(json->input, count) &&
            memcmp(json->input->at, literals[i], count) == 0) {
            keep(json, json->input->at, count);
            json->input->at += count;
            return FLW_JSON_LITERAL;
        }
    }
    return fail(json, 0, "a value expected");
}

static enum flw_json_token open(struct flw_json *json, bool is_object)
{
    if (json->depth == FLW_JSON_DEPTH_MAX) {
        return fail(json, 0, "nested deeper than 256 levels");
    }
    uint64_t bit = UINT64_C(1) << (json->depth % 64);
    uint64_t *bits = &json->object_bits[json->depth / 64];
    *bits = is_object ? *bits | bit : *bits & ~bit;
    json->depth++;
    json->input->at++;
    json->place = FLW_JSON_AT_FIRST;
    return is_object ? FLW_JSON_OBJECT : FLW_JSON_ARRAY;
}

static enum flw_json_token close(struct flw_json *json)
{
    bool is_object = is_in_object(json);
    json->depth--;
    json->input->at++;
    json->place = FLW_JSON_AT_COMMA;
    return is_object ? FLW_JSON_OBJECT_END : FLW_JSON_ARRAY_END;
}

static enum flw_json_token take_value(struct flw_json *json, int c)
{
    json->place = FLW_JSON_AT_COMMA;
    switch (c) {
    case '{':
    case '[':
        return open(json, c == '{');
    case '"':
        return take_string(json, FLW_JSON_STRING);
    case -1:
        return fail(json, c, "");
    default:
        return c == '-' || (c >= '0' && c <= '9') ? take_number(json) : take_literal(json);
    }
}

enum flw_json_token flw_json_next(struct flw_json *json)
{
    int c = begin_token(json);
    bool is_object = json->depth > 0 && is_in_object(json);
    if (json->place == FLW_JSON_AT_COMMA && json->depth == 0) {
        return c < 0 && !json->input->failed ? FLW_JSON_END : fail(json, 0, "more than one value");
    }
    if (json->place != FLW_JSON_AT_VALUE && c == (is_object ? '}' : ']')) {
        return close(json);
    }
    if (json->place == FLW_JSON_AT_COMMA) {
        if (c != ',') {
            return fail(json, c, is_object ? "\",\" or \"}\" expected" : "\",\" or \"]\" expected");
        }
        json->input->at++;
        c = begin_token(json);
    }
    if (!is_object || json->place == FLW_JSON_AT_VALUE) {
        return take_value(json, c);
    }
    return c == '"' ? take_key(json) : fail(json, c, "a key expected");
}

bool flw_json_skip(struct flw_json *json, enum flw_json_token token)
{
    if (token != FLW_JSON_OBJECT && token != FLW_JSON_ARRAY) {
        return token != FLW_JSON_FAILED;
    }
    unsigned outside = json->depth - 1;
    while (json->depth > outside) {
        if (flw_json_next(json) == FLW_JSON_FAILED) {
            return false;
        }
    }
    return true;
}

bool flw_json_get_whole(const struct flw_json *json, bool *out_is_negative, uint64_t *out)
{
    const char *at = json->text;
    uint64_t value = 0;
    *out_is_negative = *at == '-';
    at += *at == '-';
    if (json->is_cut || *at == '\0') {
        return false;
    }
    for (; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

/* ---- escapes ---- */

/* Read a "\\uXXXX" at the start of `text`. Returns false if there is none. */
static bool take_unit(const char *text, uint32_t *out)
{
    char digits[5] = "";
    if (text[0] != '\\' || text[1] != 'u') {
        return false;
    }
    strncpy(digits, text + 2, 4);
    *out = (uint32_t)strtoul(digits, NULL, 16);
    return strspn(digits, "0123456789abcdefABCDEF") == 4;
}

/* Read a character; one beyond 16 bits is two units. */
static uint32_t take_character(const char **text)
{
    uint32_t high = 0, low = 0;
    if (!take_unit(*text, &high)) {
        *text += 2;
        return '?';
    }
    *text += 6;
    bool is_half = high >= 0xD800 && high < 0xE000;
    if (is_half && high < 0xDC00 && take_unit(*text, &low) && low >= 0xDC00 && low < 0xE000) {
        *text += 6;
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    bool is_byte = high >= 0xDC80 && high < 0xDD00;
    return (is_half && !is_byte) || high == 0 ? '?' : high;
}

static char *put_character(char *out, uint32_t c)
{
    if (c < 0x80 || (c >= 0xDC80 && c < 0xDD00)) {
        *out++ = (char)c; /* a byte that is not UTF-8 */
        return out;
    }
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)(0xFFu << (7 - more) | c >> 6 * more);
    while (more-- > 0) {
        *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    }
    return out;
}

void flw_json_unescape(struct flw_json *json)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *at = json->text;
    char *out = json->text;
    while (*at != '\0') {
        const char *letter = NULL;
        if (*at != '\\') {
            *out++ = *at++;
        } else if (at[1] == '\0') {
            at++; /* the text was cut here */
        } else if ((letter = strchr(letters, at[1])) != NULL) {
            *out++ = meanings[letter - letters];
            at += 2;
        } else {
            out = put_character(out, take_character(&at));
        }
    }
    *out = '\0';
    json->text_bytes = (size_t)(out - json->text);
}
