/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the names of functions in an ELF file, by their address in it; where it has debugging information, or a file
 * that libdw finds for it has, the lines too, and what is inlined there.
 * C++'s names are told as people write them where libstdc++ is installed.
 */
#ifndef FLW_TOOL_SYMBOLS_H
#define FLW_TOOL_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_symbols;

/* NULL: the file cannot be read, is no ELF file of this machine, or has no functions. */
struct flw_symbols *flw_symbols_open(const char *path);
void flw_symbols_close(struct flw_symbols *symbols);

/* The function with that address inside, as the file has its name, and how far inside; NULL: none. Stays until close. */
const char *flw_symbols_find(const struct flw_symbols *symbols, uint64_t address,
                             uint64_t *out_offset);

struct flw_symbol_place {
    const char *function, *file; /* NULL: not known */
    unsigned line;               /* 0: not known */
};

/* The function around the instruction `offset` bytes behind where the file is loaded, and before it what is inlined into
 * it there, the innermost first. How many they are, at most `most`; 0: none is known. What they point at stays until
 * close. */
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
