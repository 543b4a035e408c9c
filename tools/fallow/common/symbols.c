/* SPDX-License-Identifier: Apache-2.0 */
#include "common/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if FLW_HAS_DW
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#endif

#include "base/compare.h"

#include "common/tool_host.h"

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Shdr) elf_section;
typedef ElfW(Sym) elf_symbol;

struct function {
    uint64_t begin, bytes; /* `begin` first: they are sorted by it */
    const char *name;
};

struct flw_symbols {
    unsigned char *file; /* untrusted: each offset is compared with file_bytes */
    size_t file_bytes;
    struct function *functions; /* by address */
    size_t count;
    uint64_t base;   /* lowest loaded address */
    char **readable; /* demangled names, kept until close */
    size_t readable_count, readable_room;
#if FLW_HAS_DW
    Dwfl *lines;
    Dwfl_Module *module; /* NULL: unknown to libdw */
#endif
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

/* Copy a structure, which may be unaligned. Returns false if the file ends before its end. */
static bool copy(const struct flw_symbols *symbols, uint64_t offset, void *out, size_t bytes)
{
    bool is_there = is_inside(symbols, offset, bytes);
    if (is_there) {
        memcpy(out, symbols->file + offset, bytes);
    }
    return is_there;
}

static bool read_section(const struct flw_symbols *symbols, const elf_header *header, size_t index,
                         elf_section *out)
{
    uint64_t at = header->e_shoff + (uint64_t)index * sizeof *out;
    return index < header->e_shnum && at >= header->e_shoff && copy(symbols, at, out, sizeof *out);
}

/* Find the full table of symbols, or the loader's. */
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

/* Find the lowest loaded address. */
static uint64_t find_base(const struct flw_symbols *symbols, const elf_header *header)
{
    ElfW(Phdr) segment = {0};
    bool is_read = header->e_phentsize == sizeof segment;
    for (size_t i = 0; is_read && segment.p_type != PT_LOAD && i < header->e_phnum; i++) {
        is_read = copy(symbols, header->e_phoff + i * sizeof segment, &segment, sizeof segment);
    }
    return segment.p_type == PT_LOAD ? segment.p_vaddr & ~UINT64_C(4095) : 0;
}

static bool read_functions(struct flw_symbols *symbols)
{
    elf_header header;
    elf_section table, names;
    if (!copy(symbols, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        header.e_shentsize != sizeof table || !find_table(symbols, &header, &table, &names)) {
        return false;
    }
    symbols->base = find_base(symbols, &header);
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
    qsort(symbols->functions, symbols->count, sizeof *symbols->functions, flw_compare_u64);
    return symbols->count > 0;
}

#if FLW_HAS_DW

/* ---- lines and inlined functions */

static void open_lines(struct flw_symbols *symbols, const char *path)
{
    static char *none; /* libdw's default folders */
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .section_address = dwfl_offline_section_address,
                                             .debuginfo_path = &none};
    symbols->lines = dwfl_begin(&callbacks);
    if (symbols->lines != NULL) {
        symbols->module = dwfl_report_offline(symbols->lines, "", path, -1);
        (void)dwfl_report_end(symbols->lines, NULL, NULL);
    }
}

static const char *name_of(Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    return dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &attribute));
}

/* Read the call of an inlined function, which is a line of the next place. */
static void read_call(Dwarf_Die *unit, Dwarf_Die *inlined, struct flw_symbol_place *out)
{
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    size_t count;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) == 0 &&
        dwarf_getsrcfiles(unit, &files, &count) == 0) {
        out->file = dwarf_filesrc(files, file, NULL, NULL);
    }
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) == 0) {
        out->line = (unsigned)line;
    }
}

/* Walk from the innermost scope of the instruction to its function. */
static size_t walk_scopes(Dwarf_Die *unit, Dwarf_Die *scopes, int scope_count,
                          struct flw_symbol_place *out, size_t most)
{
    size_t count = 0;
    for (int i = 0; i < scope_count && count < most; i++) {
        int tag = dwarf_tag(&scopes[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) {
            continue;
        }
        out[count++].function = name_of(&scopes[i]);
        if (tag == DW_TAG_subprogram) {
            break;
        }
        if (count < most) {
            out[count] = (struct flw_symbol_place){0};
            read_call(unit, &scopes[i], &out[count]);
        }
    }
    return count;
}

/* Return the number of places; 0 without debugging information. */
static size_t find_places(const struct flw_symbols *symbols, uint64_t offset,
                          struct flw_symbol_place *out, size_t most)
{
    Dwarf_Addr low = 0, bias = 0;
    Dwarf_Die *scopes = NULL, *nested = NULL;
    if (symbols->module == NULL) {
        return 0;
    }
    (void)dwfl_module_info(symbols->module, NULL, &low, NULL, NULL, NULL, NULL, NULL);
    Dwarf_Die *unit = dwfl_module_addrdie(symbols->module, low + offset, &bias);
    if (unit == NULL) {
        return 0;
    }
    out[0] = (struct flw_symbol_place){0};
    Dwfl_Line *line = dwfl_module_getsrc(symbols->module, low + offset);
    if (line != NULL) {
        int number = 0;
        out[0].file = dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL);
        out[0].line = number > 0 ? (unsigned)number : 0;
    }
    size_t count = 0;
    if (dwarf_getscopes(unit, low + offset - bias, &scopes) > 0) {
        int nested_count = dwarf_getscopes_die(&scopes[0], &nested);
        count = walk_scopes(unit, nested, nested_count, out, most);
    }
    free(nested); /* allocated by the C library */
    free(scopes);
    return count;
}

#endif

/* ---- C++ */

static char *demangle(const char *name)
{
    static char *(*function)(const char *, char *, size_t *, int *);
    static bool is_known;
    int status = -1;
    if (!is_known) {
        void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        void *address = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
        memcpy(&function, &address, sizeof function);
        is_known = true;
    }
    return function != NULL ? function(name, NULL, NULL, &status) : NULL;
}

/* Return the demangled name, or NULL. */
static const char *read_name(struct flw_symbols *symbols, const char *name)
{
    char *made = strncmp(name, "_Z", 2) == 0 ? demangle(name) : NULL;
    if (made != NULL) {
        FLW_HOST_ADD(symbols->readable, symbols->readable_count, symbols->readable_room, made);
    }
    return made;
}

/* Choose the file's name, demangled if necessary; if that fails, the name in the debugging information. */
static const char *choose_name(struct flw_symbols *symbols, const char *name, const char *told)
{
    if (name == NULL || strncmp(name, "_Z", 2) != 0) {
        return name != NULL ? name : told;
    }
    const char *readable = read_name(symbols, name);
    return readable != NULL ? readable : told != NULL ? told : name;
}

size_t flw_symbols_places(struct flw_symbols *symbols, uint64_t offset,
                          struct flw_symbol_place *out, size_t most)
{
    uint64_t inside;
    size_t count = 0;
#if FLW_HAS_DW
    count = most > 0 ? find_places(symbols, offset, out, most) : 0;
#endif
    const char *name = flw_symbols_find(symbols, symbols->base + offset, &inside);
    if (count > 0) {
        out[count - 1].function = choose_name(symbols, name, out[count - 1].function);
    } else if (most > 0 && name != NULL) {
        out[count++] = (struct flw_symbol_place){.function = choose_name(symbols, name, NULL)};
    }
    return count;
}

struct flw_symbols *flw_symbols_open(const char *path)
{
    struct flw_symbols *symbols = flw_host_alloc(1, sizeof *symbols);
    symbols->file = MAP_FAILED;
    if (!map_file(symbols, path) || !read_functions(symbols)) {
        flw_symbols_close(symbols);
        return NULL;
    }
#if FLW_HAS_DW
    open_lines(symbols, path);
#endif
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
#if FLW_HAS_DW
    if (symbols->lines != NULL) {
        dwfl_end(symbols->lines);
    }
#endif
    for (size_t i = 0; i < symbols->readable_count; i++) {
        free(symbols->readable[i]); /* allocated by the C library */
    }
    flw_host_free(symbols->readable);
    flw_host_free(symbols->functions);
    flw_host_free(symbols);
}

const char *flw_symbols_find(const struct flw_symbols *symbols, uint64_t address,
                             uint64_t *out_offset)
{
    size_t low = 0, high = symbols->count; /* `high` becomes the first function after the address */
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

size_t flw_modules_add(struct flw_modules *modules, const char *path, size_t bytes)
{
    for (size_t i = 0; i < modules->count; i++) {
        const char *known = modules->list[i].path;
        if (strncmp(known, path, bytes) == 0 && known[bytes] == '\0') {
            return i;
        }
    }
    FLW_HOST_GROW(modules->list, modules->room, modules->count + 1);
    struct flw_module *module = &modules->list[modules->count];
    *module = (struct flw_module){.path = flw_host_alloc(bytes + 1, 1)};
    memcpy(module->path, path, bytes);
    return modules->count++;
}

struct flw_symbols *flw_modules_open(struct flw_modules *modules, size_t index)
{
    struct flw_module *module = index < modules->count ? &modules->list[index] : NULL;
    if (module != NULL && !module->was_opened) {
        module->was_opened = true;
        module->symbols = flw_symbols_open(module->path);
    }
    return module != NULL ? module->symbols : NULL;
}

void flw_modules_finish(struct flw_modules *modules)
{
    for (size_t i = 0; i < modules->count; i++) {
        flw_symbols_close(modules->list[i].symbols);
        flw_host_free(modules->list[i].path);
    }
    flw_host_free(modules->list);
}
