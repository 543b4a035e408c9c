/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a text becomes a JSON string. Does not: read JSON (json.h), or know the text's encoding.
 */
#ifndef FLW_TRACE_JSONTEXT_H
#define FLW_TRACE_JSONTEXT_H

#include <stdio.h>
#include <string.h>

/* In quotes. The names of files may be any bytes: each beyond ASCII becomes one character. */
static inline void flw_json_print_bytes(FILE *file, const char *text, size_t bytes)
{
    const unsigned char *end = (const unsigned char *)text + bytes;
    putc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; c < end; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(file, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            fprintf(file, "\\u%04x", *c);
        } else {
            putc(*c, file);
        }
    }
    putc('"', file);
}

static inline void flw_json_print_text(FILE *file, const char *text)
{
    flw_json_print_bytes(file, text, strlen(text));
}

#endif
