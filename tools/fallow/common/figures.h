/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how the tables of the `fallow` command write numbers.
 */
#ifndef FLW_TOOL_FIGURES_H
#define FLW_TOOL_FIGURES_H

#include <stdint.h>

#define FLW_FIGURE_BYTES 32 /* room for any figure */

/* A number that does not apply, to a policy for example: null in JSON, "-" in a table. */
#define FLW_NOT_APPLICABLE UINT64_MAX

struct flw_unit {
    const char *name;
    uint64_t bytes;
};

/* MiB, or KiB where everything is small. */
struct flw_unit flw_unit_choose(uint64_t peak_bytes);

/* What the name of so many things ends with: "s", or "" of one. */
const char *flw_plural(uint64_t count);

/* "12,345", in `out`, which is returned. */
const char *flw_format_count(uint64_t value, char *out);
/* The same, or "-" for FLW_NOT_APPLICABLE. */
void flw_format_optional(uint64_t value, char *out);
/* Rounded to the nearest of the unit, or "-" for FLW_NOT_APPLICABLE; without its name. */
void flw_format_bytes(uint64_t bytes, struct flw_unit unit, char *out);

#endif
