/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the functions of ELF files by address; with debugging information, also in a file that libdw finds, lines and
 * inlined functions. C++ names are demangled if libstdc++ is installed.
 */
#ifndef FLW_TOOL_SYMBOLS_H
#define FLW_TOOL_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_symbols;

/* Open a file. Returns NULL if it cannot be read, is no ELF file of this machine, or has no functions. */
struct flw_symbols *flw_symbols_open(const char *path);
void flw_symbols_close(struct flw_symbols *symbols);

/* Return the name in the file of the function that contains the address, valid until close, and the offset in it; or
 * NULL. */
const char *flw_symbols_find(const struct flw_symbols *symbols, uint64_t address,
                             uint64_t *out_offset);

struct flw_symbol_place {
    const char *function, *file; /* NULL: not known */
    unsigned line;               /* 0: not known */
};

/* Find the functions inlined at the instruction `offset` bytes after the start of the loaded file, innermost first, then
 * the function that contains it. Returns their number, at most `most`; 0: unknown. Texts are valid until close. */
size_t flw_symbols_places(struct flw_symbols *symbols, uint64_t offset,
                          struct flw_symbol_place *out, size_t most);

/* Files by path, each opened when its symbols are first wanted. Zero-filled at first. */
struct flw_modules {
    struct flw_module {
        char *path;
        struct flw_symbols *symbols;
        bool was_opened;
    } * list;
    size_t count, room;
};

/* Return the index of the module with a path of so many bytes, a new one if need be. */
size_t flw_modules_add(struct flw_modules *modules, const char *path, size_t bytes);

/* Return the symbols of that module; NULL: it has none, or there is no such module. */
struct flw_symbols *flw_modules_open(struct flw_modules *modules, size_t index);
void flw_modules_finish(struct flw_modules *modules);

#endif
