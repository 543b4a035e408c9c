/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the names of functions in an ELF file, by their address in it.
 * Does not: demangle; look for separate debug files.
 */
#ifndef FLW_TOOL_SYMBOLS_H
#define FLW_TOOL_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

struct flw_symbols;

/* NULL: the file cannot be read, is no ELF file of this machine, or has no functions. */
struct flw_symbols *flw_symbols_open(const char *path);
void flw_symbols_close(struct flw_symbols *symbols);

/* The function with that address inside, and how far inside; NULL: none. Stays until close. */
const char *flw_symbols_find(const struct flw_symbols *symbols, uint64_t address,
                             uint64_t *out_offset);

#endif
