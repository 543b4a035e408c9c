/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: formatting sizes, counts and times for the `fallow` command.
 */
#ifndef FLW_TOOL_FIGURES_H
#define FLW_TOOL_FIGURES_H

#include <stddef.h>
#include <stdint.h>

#define FLW_FIGURE_BYTES 32 /* room for any figure */

/* A number that does not apply, to a policy for example: null in JSON, "-" in a table. */
#define FLW_NOT_APPLICABLE UINT64_MAX

/* Each function writes to `out` (FLW_FIGURE_BYTES) and returns it; "-" for FLW_NOT_APPLICABLE. */

/* "12,345" */
const char *flw_format_count(uint64_t value, char *out);
/* In the largest unit that fits, with three digits: "850 B", "12.3 MiB", "4 GiB". */
const char *flw_format_size(uint64_t bytes, char *out);
/* "850 ns", "1.25 ms" */
const char *flw_format_time(double ns, char *out);

/* The same in a text of the caller's own, which lasts to the end of the surrounding block. */
#define FLW_COUNT(value) flw_format_count(value, (char[FLW_FIGURE_BYTES]){0})
#define FLW_SIZE(bytes)  flw_format_size(bytes, (char[FLW_FIGURE_BYTES]){0})
#define FLW_TIME(ns)     flw_format_time(ns, (char[FLW_FIGURE_BYTES]){0})

/* The unit of a column of sizes. */
struct flw_unit {
    const char *name;
    uint64_t bytes;
    int decimals;
};

/* Choose KiB below 4 MiB, MiB below 4 GiB, else GiB with two decimals. */
struct flw_unit flw_unit_choose(uint64_t peak_bytes);

/* Format bytes in the unit, without its name. */
const char *flw_format_bytes(uint64_t bytes, struct flw_unit unit, char *out);

#define FLW_BYTES(bytes, unit) flw_format_bytes(bytes, unit, (char[FLW_FIGURE_BYTES]){0})

/* Append to a text of `room` bytes; the text is cut if it is full. */
void flw_append(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Return the plural ending for a count: "s", or "" for one. */
const char *flw_plural(uint64_t count);

#endif
