/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one member of a JSON object, behind the members before it: `, "key": value`.
 * Does not: open or close an object, or quote what is in a key.
 */
#ifndef FLW_TOOL_JSONMEMBER_H
#define FLW_TOOL_JSONMEMBER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "trace/jsontext.h"

static inline void flw_member_null(FILE *out, const char *key)
{
    fprintf(out, ", \"%s\": null", key);
}

/* UINT64_MAX, which stands for what is unknown or does not apply, is null. */
static inline void flw_member_count(FILE *out, const char *key, uint64_t value)
{
    if (value == UINT64_MAX) {
        flw_member_null(out, key);
    } else {
        fprintf(out, ", \"%s\": %" PRIu64, key, value);
    }
}

static inline void flw_member_real(FILE *out, const char *key, bool is_known, double value)
{
    if (is_known) {
        fprintf(out, ", \"%s\": %.6f", key, value);
    } else {
        flw_member_null(out, key);
    }
}

static inline void flw_member_bool(FILE *out, const char *key, bool value)
{
    fprintf(out, ", \"%s\": %s", key, value ? "true" : "false");
}

/* NULL is the empty text. */
static inline void flw_member_text(FILE *out, const char *key, const char *text)
{
    fprintf(out, ", \"%s\": ", key);
    flw_json_print_text(out, text == NULL ? "" : text);
}

#endif
