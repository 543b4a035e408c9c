/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing values as JSON: commas, quotes, unknown values. Members and items are written in order; a NULL key
 * writes an item of a list.
 * Does not: match brackets, quote the content of keys, or read JSON (json.h).
 */
#ifndef FLW_TRACE_IO_JSONWRITER_H
#define FLW_TRACE_IO_JSONWRITER_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Return the bytes of the UTF-8 character that begins here and ends before `end`; 0: none. */
static inline size_t flw_json_utf8_length(const unsigned char *c, const unsigned char *end)
{
    size_t length = *c < 0x80 ? 1 : *c < 0xc2 || *c > 0xf4 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;
    if (length > (size_t)(end - c)) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Overlong, half of a surrogate pair, or beyond the last character. */
    bool is_none = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) ||
                   (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f);
    return is_none ? 0 : length;
}

/* Print a piece of a text. A byte that is not UTF-8 becomes \udcXX, half of a pair as in Python's surrogateescape, if
 * `keeps`, else a question mark. `escapes_tags`: "<" becomes \u003c. */
static inline void flw_json_print_piece(FILE *file, const char *text, size_t bytes, bool keeps,
                                        bool escapes_tags)
{
    const unsigned char *c = (const unsigned char *)text, *end = c + bytes;
    for (size_t length; c < end; c += length == 0 ? 1 : length) {
        length = flw_json_utf8_length(c, end);
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20 || *c == 0x7f || (*c == '<' && escapes_tags)) {
            fprintf(file, "\\u%04x", *c);
        } else if (length == 0 && keeps) {
            fprintf(file, "\\udc%02x", *c);
        } else if (length <= 1) {
            putc(length == 0 ? '?' : *c, file);
        } else {
            fwrite(c, 1, length, file);
        }
    }
}

/* Print a piece of a text for readers that require UTF-8: other bytes become question marks. */
static inline void flw_json_print_utf8(FILE *file, const char *text, size_t bytes)
{
    flw_json_print_piece(file, text, bytes, false, false);
}

/* Print a text in quotes. Names of files may have any bytes; flw_json_unescape restores them. */
static inline void flw_json_print_text(FILE *file, const char *text)
{
    putc('"', file);
    flw_json_print_piece(file, text, strlen(text), true, false);
    putc('"', file);
}

struct flw_json_writer {
    FILE *file;
    bool is_spaced;    /* ", " and ": ", else "," and ":" */
    bool is_utf8;      /* for readers that require UTF-8 */
    bool is_in_page;   /* inside of HTML: no text may contain a tag */
    bool follows;      /* another value of the same object or list precedes */
    const char *line;  /* the next value begins a line with this indent; NULL: no new line */
    unsigned depth;    /* open brackets */
    const char *lines; /* each member of the outermost object except the first begins a line */
};

static inline void flw_json_key(struct flw_json_writer *out, const char *key)
{
    if (out->lines != NULL && out->follows && out->depth == 1) {
        out->line = out->lines;
    }
    if (out->line != NULL) {
        fprintf(out->file, "%s\n%s", out->follows ? "," : "", out->line);
        out->line = NULL;
    } else if (out->follows) {
        fputs(out->is_spaced ? ", " : ",", out->file);
    }
    if (key != NULL) {
        fprintf(out->file, out->is_spaced ? "\"%s\": " : "\"%s\":", key);
    }
    out->follows = true;
}

static inline void flw_json_begin(struct flw_json_writer *out, const char *key, char bracket)
{
    flw_json_key(out, key);
    putc(bracket, out->file);
    out->follows = false;
    out->depth++;
}

static inline void flw_json_end(struct flw_json_writer *out, char bracket)
{
    putc(bracket, out->file);
    out->follows = true;
    out->depth--;
}

static inline void flw_json_null(struct flw_json_writer *out, const char *key)
{
    flw_json_key(out, key);
    fputs("null", out->file);
}

/* Begin a bracket; if the value is unknown, write null instead and return false. */
static inline bool flw_json_begin_known(struct flw_json_writer *out, const char *key, bool is_known,
                                        char bracket)
{
    if (is_known) {
        flw_json_begin(out, key, bracket);
    } else {
        flw_json_null(out, key);
    }
    return is_known;
}

static inline void flw_json_number(struct flw_json_writer *out, const char *key, uint64_t value)
{
    flw_json_key(out, key);
    fprintf(out->file, "%" PRIu64, value);
}

static inline void flw_json_known(struct flw_json_writer *out, const char *key, bool is_known,
                                  uint64_t value)
{
    if (is_known) {
        flw_json_number(out, key, value);
    } else {
        flw_json_null(out, key);
    }
}

/* Write a number; UINT64_MAX (unknown, or not applicable) becomes null. */
static inline void flw_json_count(struct flw_json_writer *out, const char *key, uint64_t value)
{
    flw_json_known(out, key, value != UINT64_MAX, value);
}

struct flw_json_pair {
    const char *key;
    uint64_t value;
};

static inline void flw_json_pairs(struct flw_json_writer *out, bool is_count,
                                  const struct flw_json_pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        flw_json_known(out, pairs[i].key, !is_count || pairs[i].value != UINT64_MAX,
                       pairs[i].value);
    }
}

#define FLW_JSON_PAIRS(out, is_count, ...)                                     \
    flw_json_pairs(out, is_count, (const struct flw_json_pair[]){__VA_ARGS__}, \
                   sizeof((struct flw_json_pair[]){__VA_ARGS__}) / sizeof(struct flw_json_pair))

/* Write {key, value}, {key, value}, ... with flw_json_number and flw_json_count. */
#define FLW_JSON_NUMBERS(out, ...) FLW_JSON_PAIRS(out, false, __VA_ARGS__)
#define FLW_JSON_COUNTS(out, ...)  FLW_JSON_PAIRS(out, true, __VA_ARGS__)

/* Write a number with `digits` decimals; null if not finite. */
static inline void flw_json_fixed(struct flw_json_writer *out, const char *key, int digits,
                                  double value)
{
    flw_json_key(out, key);
    fprintf(out->file, isfinite(value) ? "%.*f" : "null", digits, value);
}

/* Write a number with `digits` significant digits, as "%g"; null if not finite. */
static inline void flw_json_general(struct flw_json_writer *out, const char *key, int digits,
                                    double value)
{
    flw_json_key(out, key);
    fprintf(out->file, isfinite(value) ? "%.*g" : "null", digits, value);
}

static inline void flw_json_real(struct flw_json_writer *out, const char *key, bool is_known,
                                 double value)
{
    flw_json_fixed(out, key, 6, is_known ? value : (double)NAN);
}

static inline void flw_json_bool(struct flw_json_writer *out, const char *key, bool value)
{
    flw_json_key(out, key);
    fputs(value ? "true" : "false", out->file);
}

static inline void flw_json_bytes(struct flw_json_writer *out, const char *key, const char *text,
                                  size_t bytes)
{
    flw_json_key(out, key);
    putc('"', out->file);
    flw_json_print_piece(out->file, text, bytes, !out->is_utf8, out->is_in_page);
    putc('"', out->file);
}

/* Write a text; NULL becomes null. */
static inline void flw_json_text(struct flw_json_writer *out, const char *key, const char *text)
{
    if (text == NULL) {
        flw_json_null(out, key);
    } else {
        flw_json_bytes(out, key, text, strlen(text));
    }
}

#endif
