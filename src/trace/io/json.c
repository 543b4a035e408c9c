/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the grammar of JSON.
 */
#include "trace/io/json.h"

#include <string.h>

static enum flw_json_token fail(struct flw_json *json, const char *what)
{
    flw_input_fail(json->input, flw_input_offset(json->input), "not JSON: %s", what);
    return FLW_JSON_FAILED;
}

static enum flw_json_token fail_short(struct flw_json *json)
{
    flw_input_fail_short(json->input, "the JSON text");
    return FLW_JSON_FAILED;
}

/* Return the next byte without consuming it; -1: none. */
static int peek(struct flw_json *json)
{
    struct flw_input *input = json->input;
    return input->at < input->end || flw_input_fill(input, 1) ? *input->at : -1;
}

static int peek_after_space(struct flw_json *json)
{
    int c = peek(json);
    while (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        json->input->at++;
        c = peek(json);
    }
    return c;
}

static bool is_in_object(const struct flw_json *json)
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

/* Read a string. The input is at the quote. */
static bool take_string(struct flw_json *json)
{
    struct flw_input *input = json->input;
    keep_nothing(json);
    input->at++;
    for (;;) {
        if (peek(json) < 0) {
            fail_short(json);
            return false;
        }
        const unsigned char *begin = input->at;
        const unsigned char *at = begin;
        while (at < input->end && *at != '"' && *at != '\\') {
            at++;
        }
        keep(json, begin, (size_t)(at - begin));
        input->at = at;
        if (at == input->end) {
            continue;
        }
        if (*at == '"') {
            input->at++;
            return true;
        }
        if (!flw_input_fill(input, 2)) {
            fail_short(json);
            return false;
        }
        keep(json, input->at, 2);
        input->at += 2;
    }
}

static enum flw_json_token take_key(struct flw_json *json)
{
    if (!take_string(json)) {
        return FLW_JSON_FAILED;
    }
    int c = peek_after_space(json);
    if (c != ':') {
        return c < 0 ? fail_short(json) : fail(json, "\":\" expected after a key");
    }
    json->input->at++;
    json->place = FLW_JSON_AT_VALUE;
    return FLW_JSON_KEY;
}

static enum flw_json_token take_number(struct flw_json *json)
{
    keep_nothing(json);
    for (;;) {
        int c = peek(json);
        bool belongs =
            (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
        if (!belongs) {
            break;
        }
        keep(json, json->input->at++, 1);
    }
    json->place = FLW_JSON_AT_COMMA;
    char last = json->text[json->text_bytes - 1];
    return json->is_cut || (last >= '0' && last <= '9') ? FLW_JSON_NUMBER
                                                        : fail(json, "a number without digits");
}

static enum flw_json_token take_literal(struct flw_json *json)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        size_t count = strlen(literals[i]);
        if (flw_input_fill(json->input, count) &&
            memcmp(json->input->at, literals[i], count) == 0) {
            keep_nothing(json);
            keep(json, json->input->at, count);
            json->input->at += count;
            json->place = FLW_JSON_AT_COMMA;
            return FLW_JSON_LITERAL;
        }
    }
    return json->input->failed ? FLW_JSON_FAILED : fail(json, "a value expected");
}

static enum flw_json_token open(struct flw_json *json, bool is_object)
{
    if (json->depth == FLW_JSON_DEPTH_MAX) {
        return fail(json, "nested deeper than 256 levels");
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
    switch (c) {
    case '{':
        return open(json, true);
    case '[':
        return open(json, false);
    case '"':
        json->place = FLW_JSON_AT_COMMA;
        return take_string(json) ? FLW_JSON_STRING : FLW_JSON_FAILED;
    case -1:
        return fail_short(json);
    default:
        return c == '-' || (c >= '0' && c <= '9') ? take_number(json) : take_literal(json);
    }
}

/* Read the comma or closing bracket after a value inside brackets. */
static enum flw_json_token take_comma(struct flw_json *json, int c)
{
    bool is_object = is_in_object(json);
    if (c == (is_object ? '}' : ']')) {
        return close(json);
    }
    if (c != ',') {
        return c < 0
                   ? fail_short(json)
                   : fail(json, is_object ? "\",\" or \"}\" expected" : "\",\" or \"]\" expected");
    }
    json->input->at++;
    json->place = is_object ? FLW_JSON_AT_KEY : FLW_JSON_AT_VALUE;
    return FLW_JSON_END; /* continue */
}

enum flw_json_token flw_json_next(struct flw_json *json)
{
    int c = peek_after_space(json);
    json->offset = flw_input_offset(json->input);
    if (json->place == FLW_JSON_AT_COMMA) {
        if (json->depth == 0) {
            return c < 0 && !json->input->failed ? FLW_JSON_END : fail(json, "more than one value");
        }
        enum flw_json_token token = take_comma(json, c);
        if (token != FLW_JSON_END) {
            return token;
        }
        c = peek_after_space(json);
        json->offset = flw_input_offset(json->input);
    }
    if (json->place == FLW_JSON_AT_FIRST) {
        bool is_object = is_in_object(json);
        if (c == (is_object ? '}' : ']')) {
            return close(json);
        }
        json->place = is_object ? FLW_JSON_AT_KEY : FLW_JSON_AT_VALUE;
    }
    if (json->place == FLW_JSON_AT_KEY) {
        return c == '"' ? take_key(json) : c < 0 ? fail_short(json) : fail(json, "a key expected");
    }
    return take_value(json, c);
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

/* Read the four digits of a "\\uXXXX" at the start of `text`. Returns false if there is none. */
static bool take_unit(const char *text, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t unit = 0;
    if (text[0] != '\\' || text[1] != 'u') {
        return false;
    }
    for (int i = 2; i < 6; i++) {
        char low = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] | 0x20 : text[i]);
        const char *digit = low == '\0' ? NULL : strchr(digits, low);
        if (digit == NULL) {
            return false;
        }
        unit = unit << 4 | (uint32_t)(digit - digits);
    }
    *out = unit;
    return true;
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
