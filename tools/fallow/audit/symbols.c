/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/tool_host.h"

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Shdr) elf_section;
typedef ElfW(Sym) elf_symbol;

struct function {
    uint64_t begin, bytes;
    const char *name;
};

struct flw_symbols {
    unsigned char *file; /* nothing in it is believed before it was compared with file_bytes */
    size_t file_bytes;
    struct function *functions; /* by address */
    size_t count;
};

static bool is_inside(const struct flw_symbols *symbols, uint64_t offset, uint64_t bytes)
{
    return bytes <= symbols->file_bytes && offset <= symbols->file_bytes - bytes;
}

static bool map_file(struct flw_symbols *symbols, const char *path)
{
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    symbols->file = MAP_FAILED;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0) {
        symbols->file_bytes = (size_t)facts.st_size;
        symbols->file = mmap(NULL, symbols->file_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    }
    close(file);
    return symbols->file != MAP_FAILED;
}

/* A section's header, copied, since nothing says that it is aligned. */
static bool read_section(const struct flw_symbols *symbols, const elf_header *header, size_t index,
                         elf_section *out)
{
    uint64_t at = header->e_shoff + (uint64_t)index * sizeof *out;
    if (index >= header->e_shnum || at < header->e_shoff || !is_inside(symbols, at, sizeof *out)) {
        return false;
    }
    memcpy(out, symbols->file + at, sizeof *out);
    return true;
}

/* The full table where there is one, else that of the loader. */
static bool find_table(const struct flw_symbols *symbols, const elf_header *header,
                       elf_section *out_table, elf_section *out_names)
{
    static const unsigned kinds[] = {SHT_SYMTAB, SHT_DYNSYM};
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; read_section(symbols, header, i, out_table); i++) {
            if (out_table->sh_type == kinds[kind] &&
                is_inside(symbols, out_table->sh_offset, out_table->sh_size) &&
                read_section(symbols, header, out_table->sh_link, out_names) &&
                is_inside(symbols, out_names->sh_offset, out_names->sh_size) &&
                out_names->sh_size > 0) {
                return true;
            }
        }
    }
    return false;
}

static int compare_functions(const void *a, const void *b)
{
    const struct function *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static bool read_functions(struct flw_symbols *symbols)
{
    elf_header header;
    elf_section table, names;
    if (symbols->file_bytes < sizeof header) {
        return false;
    }
    memcpy(&header, symbols->file, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        header.e_shentsize != sizeof table || !find_table(symbols, &header, &table, &names)) {
        return false;
    }
    size_t room = table.sh_size / sizeof(elf_symbol);
    const char *text = (const char *)symbols->file + names.sh_offset;
    symbols->functions = flw_host_alloc(room, sizeof *symbols->functions);
    if (text[names.sh_size - 1] != '\0') {
        return false;
    }
    for (size_t i = 0; i < room; i++) {
        elf_symbol symbol;
        memcpy(&symbol, symbols->file + table.sh_offset + i * sizeof symbol, sizeof symbol);
        unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF &&
            symbol.st_name < names.sh_size) {
            symbols->functions[symbols->count++] =
                (struct function){symbol.st_value, symbol.st_size, text + symbol.st_name};
        }
    }
    qsort(symbols->functions, symbols->count, sizeof *symbols->functions, compare_functions);
    return symbols->count > 0;
}

struct flw_symbols *flw_symbols_open(const char *path)
{
    struct flw_symbols *symbols = flw_host_alloc(1, sizeof *symbols);
    symbols->file = MAP_FAILED;
    if (!map_file(symbols, path) || !read_functions(symbols)) {
        flw_symbols_close(symbols);
        return NULL;
    }
    return symbols;
}

void flw_symbols_close(struct flw_symbols *symbols)
{
    if (symbols == NULL) {
        return;
    }
    if (symbols->file != MAP_FAILED) {
        munmap(symbols->file, symbols->file_bytes);
    }
    flw_host_free(symbols->functions);
    flw_host_free(symbols);
}

const char *flw_symbols_find(const struct flw_symbols *symbols, uint64_t address,
                             uint64_t *out_offset)
{
    size_t low = 0, high = symbols->count; /* the first that begins behind the address is high */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (symbols->functions[middle].begin <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    const struct function *function = &symbols->functions[low - 1];
    *out_offset = address - function->begin;
    return *out_offset < function->bytes || function->bytes == 0 ? function->name : NULL;
}
