/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: why the hooks were never reached, from the page and a look at the command's file.
 */
#include "common/launch.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/command.h"

#define SCRIPT_DEPTH 4 /* scripts whose interpreters are scripts; the kernel's own limit */
#define HEAD_BYTES   4096

/* ---- the command's file */

enum program_kind {
    PROGRAM_DYNAMIC, /* nothing speaks against it */
    PROGRAM_STATIC,  /* no loader */
    PROGRAM_FOREIGN, /* of another word size or processor than the library */
    PROGRAM_ASAN,    /* needs AddressSanitizer's runtime as a library */
    PROGRAM_SECURE,  /* setuid, setgid or capabilities: the loader ignores LD_PRELOAD */
    PROGRAM_UNKNOWN  /* not found, not readable, or neither ELF nor a script */
};

struct program_file {
    enum program_kind kind;
    char path[FLW_LAUNCH_PATH_BYTES]; /* of the file that is loaded: a script's interpreter */
};

/* False: there is no such file to execute. */
static bool find_in_path(const char *name, char *out)
{
    const char *at = getenv("PATH");
    if (strchr(name, '/') != NULL) {
        return snprintf(out, FLW_LAUNCH_PATH_BYTES, "%s", name) < FLW_LAUNCH_PATH_BYTES;
    }
    for (at = at != NULL ? at : "/bin:/usr/bin";; at++) {
        size_t length = strcspn(at, ":");
        int written = snprintf(out, FLW_LAUNCH_PATH_BYTES, "%.*s%s%s", (int)length, at,
                               length > 0 ? "/" : "", name);
        if (written < FLW_LAUNCH_PATH_BYTES && access(out, X_OK) == 0) {
            return true;
        }
        at += length;
        if (*at == '\0') {
            return false;
        }
    }
}

static bool is_secure(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0) {
        return false;
    }
    return ((facts.st_mode & S_ISUID) != 0 && facts.st_uid != getuid()) ||
           ((facts.st_mode & S_ISGID) != 0 && (facts.st_mode & S_IXGRP) != 0 &&
            facts.st_gid != getgid()) ||
           (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

/* Has the file's table of segments an interpreter in it? */
static bool has_loader(int fd, const Elf64_Ehdr *header)
{
    bool found = false;
    for (unsigned i = 0; i < header->e_phnum && !found; i++) {
        Elf64_Phdr segment;
        off_t at = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);
        found = pread(fd, &segment, sizeof segment, at) == (ssize_t)sizeof segment &&
                segment.p_type == PT_INTERP;
    }
    return found;
}

/* True if the ELF file's strings contain the name of AddressSanitizer's runtime library. */
static bool needs_asan(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || facts.st_size <= 0) {
        return false;
    }
    size_t bytes = (size_t)facts.st_size;
    void *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        return false;
    }
    bool is_one = memmem(text, bytes, "libasan.so", strlen("libasan.so")) != NULL ||
                  memmem(text, bytes, "libclang_rt.asan", strlen("libclang_rt.asan")) != NULL;
    (void)munmap(text, bytes);
    return is_one;
}

static enum program_kind kind_of_elf(int fd, const Elf64_Ehdr *header)
{
    static const uint16_t machine =
#if defined(__x86_64__)
        EM_X86_64;
#else
        EM_AARCH64;
#endif
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != machine) {
        return PROGRAM_FOREIGN;
    }
    if (!has_loader(fd, header)) {
        return PROGRAM_STATIC;
    }
    return is_secure(fd) ? PROGRAM_SECURE : needs_asan(fd) ? PROGRAM_ASAN : PROGRAM_DYNAMIC;
}

/* The interpreter of a script's first line; of `env NAME` the program NAME. False: there is none. */
static bool read_interpreter(char *line, char *out)
{
    static const char blanks[] = " \t\n\r";
    char *rest, *name = strtok_r(line + 2, blanks, &rest);
    char *argument = name != NULL ? strtok_r(NULL, blanks, &rest) : NULL;
    if (name == NULL) {
        return false;
    }
    const char *base = strrchr(name, '/');
    if (argument != NULL && strcmp(base != NULL ? base + 1 : name, "env") == 0) {
        if (strcmp(argument, "-S") == 0) {
            argument = strtok_r(NULL, blanks, &rest);
        }
        return argument != NULL && find_in_path(argument, out);
    }
    return snprintf(out, FLW_LAUNCH_PATH_BYTES, "%s", name) < FLW_LAUNCH_PATH_BYTES;
}

/* `name` is looked up as execvp does. */
static void look_at(const char *name, struct program_file *out)
{
    *out = (struct program_file){.kind = PROGRAM_UNKNOWN};
    bool goes_on = find_in_path(name, out->path);
    for (int depth = 0; goes_on && depth < SCRIPT_DEPTH; depth++) {
        char head[HEAD_BYTES + 1] = "";
        int fd = open(out->path, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd >= 0 ? read(fd, head, HEAD_BYTES) : -1;
        goes_on = false;
        if (length >= (ssize_t)sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0) {
            Elf64_Ehdr header;
            memcpy(&header, head, sizeof header);
            out->kind = kind_of_elf(fd, &header);
        } else if (length > 2 && memcmp(head, "#!", 2) == 0) {
            head[strcspn(head, "\n")] = '\0';
            goes_on = read_interpreter(head, out->path);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
}

/* ---- why */

static bool has_flag(const struct flw_runpage_place *place, enum flw_runpage_flag flag)
{
    return (atomic_load(&place->flags) & (uint32_t)flag) != 0;
}

static size_t place_count(const struct flw_runpage *page)
{
    size_t count = atomic_load(&page->place_count);
    return count < FLW_RUNPAGE_PLACES ? count : FLW_RUNPAGE_PLACES;
}

/* The last place with the flag; NULL: there is none. */
static const struct flw_runpage_place *find(const struct flw_runpage *page,
                                            enum flw_runpage_flag flag)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < place_count(page); i++) {
        found = has_flag(&page->places[i], flag) ? &page->places[i] : found;
    }
    return found;
}

/* The last image of a process that did not come to its end: another one took its place, or _exit, or
 * a signal. NULL: there is none. */
static const struct flw_runpage_place *find_unended(const struct flw_runpage *page)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < place_count(page); i++) {
        bool is_last = true;
        for (size_t j = i + 1; j < place_count(page); j++) {
            is_last &= atomic_load(&page->places[j].pid) != atomic_load(&page->places[i].pid);
        }
        if (is_last && !has_flag(&page->places[i], FLW_RUNPAGE_ENDED)) {
            found = &page->places[i];
        }
    }
    return found;
}

static void explain_unloaded(const struct flw_launch *launch,
                             const struct flw_launch_outcome *outcome)
{
    struct program_file file;
    look_at(launch->command[0], &file);
    switch (file.kind) {
    case PROGRAM_STATIC:
        flw_complain("%s: the hooks were never reached: %s is statically linked, so nothing can be "
                     "preloaded into it",
                     launch->subcommand, file.path);
        break;
    case PROGRAM_ASAN:
        flw_complain("%s: the hooks were never reached: %s is built with AddressSanitizer, which "
                     "ends a program if its runtime is not the first library; set "
                     "ASAN_OPTIONS=verify_asan_link_order=0",
                     launch->subcommand, file.path);
        break;
    case PROGRAM_SECURE:
        flw_complain(
            "%s: the hooks were never reached: %s is setuid, setgid or has capabilities, and "
            "then the loader ignores LD_PRELOAD",
            launch->subcommand, file.path);
        break;
    case PROGRAM_FOREIGN:
        flw_complain(
            "%s: the hooks were never reached: %s is for another processor or word size than "
            "%s",
            launch->subcommand, file.path, outcome->library);
        break;
    case PROGRAM_DYNAMIC:
    case PROGRAM_UNKNOWN:
        flw_complain(
            "%s: the hooks were never reached: %s was not loaded into %s; see the loader error above "
            "(setuid programs cannot be preloaded)",
            launch->subcommand, outcome->library,
            file.path[0] != '\0' ? file.path : launch->command[0]);
        break;
    }
}

/* The driver was found, and then the process could not say any more: the hooks may have been reached. */
static bool may_have_reached(const struct flw_runpage *page)
{
    bool may = false;
    for (size_t i = 0; i < place_count(page); i++) {
        may |= has_flag(&page->places[i], FLW_RUNPAGE_DRIVER) &&
               !has_flag(&page->places[i], FLW_RUNPAGE_ENDED);
    }
    return may;
}

bool flw_launch_is_reached(const struct flw_launch_outcome *outcome)
{
    return outcome->page != NULL &&
           (find(outcome->page, FLW_RUNPAGE_REACHED) != NULL || may_have_reached(outcome->page));
}

bool flw_launch_has(const struct flw_launch_outcome *outcome, enum flw_runpage_flag flag)
{
    return outcome->page != NULL && find(outcome->page, flag) != NULL;
}

bool flw_launch_explain(const struct flw_launch *launch, const struct flw_launch_outcome *outcome)
{
    const struct flw_runpage *page = outcome->page;
    if (page == NULL || flw_launch_is_reached(outcome) || find(page, FLW_RUNPAGE_OFF) != NULL) {
        return false;
    }
    const struct flw_runpage_place *unended = find_unended(page);
    const struct flw_runpage_place *passed = find(page, FLW_RUNPAGE_PASSED);
    if (place_count(page) == 0) {
        explain_unloaded(launch, outcome);
    } else if (passed != NULL) {
        flw_complain("%s: the hooks were never reached: %s (%d) loaded the driver past them: by "
                     "RTLD_DEEPBIND, dlmopen or a library in front of this one, or never called it",
                     launch->subcommand, passed->name, (int)atomic_load(&passed->pid));
    } else if (find(page, FLW_RUNPAGE_DRIVER) != NULL) {
        flw_complain(
            "%s: the hooks were never reached: the driver was loaded, but nothing of it was "
            "called that is hooked",
            launch->subcommand);
    } else if (unended != NULL && outcome->signal == 0) {
        flw_complain(
            "%s: the hooks were never reached: no CUDA was used up to where %s (%d) ended by "
            "_exit or a signal or became a program without LD_PRELOAD: one that is static or "
            "setuid, or was given another environment",
            launch->subcommand, unended->name, (int)atomic_load(&unended->pid));
    } else {
        flw_complain(
            "%s: the hooks were never reached: no CUDA was used, libcuda.so.1 was not loaded",
            launch->subcommand);
    }
    return true;
}
