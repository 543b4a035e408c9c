/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: finding out why no hook was called, from the page and the command's file.
 */
#include "common/launch.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bits.h"

#include "common/command.h"

#define SCRIPT_DEPTH 4 /* the kernel's limit of interpreters that are scripts */
#define HEAD_BYTES   4096

/* ---- the command's file */

/* Obstacles to preloading, as the predicate of a sentence with the program as subject. */
static const char has_no_loader[] = "is statically linked, so nothing can be preloaded into it";
static const char is_foreign[] = "is for another processor or word size than"; /* ... the library */
static const char is_protected[] =
    "is setuid, setgid or has capabilities, so the loader ignores LD_PRELOAD";
static const char needs_asan[] =
    "is built with AddressSanitizer, which ends a program if its runtime is not the first library; "
    "set ASAN_OPTIONS=verify_asan_link_order=0";

/* Find a command as execvp does. Returns false if there is none. */
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

/* True if a segment of the ELF file names a loader. */
static bool has_loader(const char *text, size_t bytes, const Elf64_Ehdr *header)
{
    bool found = false;
    for (uint64_t i = 0; i < header->e_phnum && !found; i++) {
        Elf64_Phdr segment;
        uint64_t at = header->e_phoff + i * header->e_phentsize;
        if (at <= bytes && bytes - at >= sizeof segment) {
            memcpy(&segment, text + at, sizeof segment);
            found = segment.p_type == PT_INTERP;
        }
    }
    return found;
}

/* Return the obstacle to preloading into an ELF file, or NULL. */
static const char *find_obstacle(int fd, const char *text, size_t bytes)
{
    static const uint16_t machine =
#if defined(__x86_64__)
        EM_X86_64;
#else
        EM_AARCH64;
#endif
    Elf64_Ehdr header;
    memcpy(&header, text, sizeof header);
    return header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine ? is_foreign
           : !has_loader(text, bytes, &header)                                   ? has_no_loader
           : is_secure(fd)                                                       ? is_protected
           : memmem(text, bytes, "libasan.so", 10) != NULL ||
                   memmem(text, bytes, "libclang_rt.asan", 16) != NULL
               ? needs_asan
               : NULL;
}

/* Find the interpreter in the first line of a script; for `env NAME` the program NAME. Returns false if there is none. */
static bool read_interpreter(const char *text, size_t bytes, char *out)
{
    static const char blanks[] = " \t\n\r";
    char line[HEAD_BYTES], *rest;
    snprintf(line, sizeof line, "%.*s", (int)flw_min(bytes, sizeof line), text);
    line[strcspn(line, "\n")] = '\0';
    char *name = strtok_r(line + 2, blanks, &rest);
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

/* Find the file that is loaded for a command, for a script its interpreter. Returns the obstacle to preloading, or
 * NULL. */
static const char *look_at(const char *command, char *path)
{
    const char *obstacle = NULL;
    bool goes_on = find_in_path(command, path);
    for (int depth = 0; goes_on && depth < SCRIPT_DEPTH; depth++) {
        struct stat facts = {0};
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        size_t bytes = fd >= 0 && fstat(fd, &facts) == 0 ? (size_t)facts.st_size : 0;
        void *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        goes_on = false;
        if (text != MAP_FAILED) {
            if (bytes >= sizeof(Elf64_Ehdr) && memcmp(text, ELFMAG, SELFMAG) == 0) {
                obstacle = find_obstacle(fd, text, bytes);
            } else if (bytes > 2 && memcmp(text, "#!", 2) == 0) {
                goes_on = read_interpreter(text, bytes, path);
            }
            (void)munmap(text, bytes);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return obstacle;
}

/* ---- why */

/* Find the last place with all `flags` and without `none`, or NULL. */
static const struct flw_runpage_place *find(const struct flw_runpage *page, uint32_t flags,
                                            uint32_t none)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < flw_launch_place_count(page); i++) {
        const struct flw_runpage_place *place = &page->places[i];
        uint32_t has = atomic_load(&place->flags);
        found = (has & flags) == flags && (has & none) == 0 ? place : found;
    }
    return found;
}

/* Find the last place of a process that neither ended by exit nor became another image, or NULL. */
static const struct flw_runpage_place *find_unended(const struct flw_runpage *page)
{
    const struct flw_runpage_place *found = NULL;
    for (size_t i = 0; i < flw_launch_place_count(page); i++) {
        const struct flw_runpage_place *place = &page->places[i];
        bool has_ended = (atomic_load(&place->flags) & FLW_RUNPAGE_ENDED) != 0;
        found = has_ended || flw_launch_is_replaced(page, i) ? found : place;
    }
    return found;
}

/* A process that found the driver and did not end by exit may have called a hook. */
bool flw_launch_is_reached(const struct flw_launch *launch)
{
    return flw_launch_has(launch, FLW_RUNPAGE_REACHED) ||
           (launch->page != NULL && find(launch->page, FLW_RUNPAGE_DRIVER, FLW_RUNPAGE_ENDED));
}

bool flw_launch_has(const struct flw_launch *launch, enum flw_runpage_flag flag)
{
    return launch->page != NULL && find(launch->page, flag, 0) != NULL;
}

#define UNREACHED "%s: the hooks were never reached: "

bool flw_launch_explain(const struct flw_launch *launch)
{
    const struct flw_runpage *page = launch->page;
    const char *subcommand = launch->subcommand;
    if (page == NULL || flw_launch_is_reached(launch) || flw_launch_has(launch, FLW_RUNPAGE_OFF)) {
        return false;
    }
    const struct flw_runpage_place *unended = find_unended(page);
    const struct flw_runpage_place *passed = find(page, FLW_RUNPAGE_PASSED, 0);
    char path[FLW_LAUNCH_PATH_BYTES] = "";
    const char *obstacle = NULL;
    bool is_loaded = flw_launch_place_count(page) > 0;
    if (!is_loaded) {
        obstacle = look_at(launch->command[0], path);
    }
    if (obstacle != NULL) {
        flw_complain(UNREACHED "%s %s%s%s", subcommand, path, obstacle,
                     obstacle == is_foreign ? " " : "",
                     obstacle == is_foreign ? launch->loaded : "");
    } else if (!is_loaded) {
        flw_complain(UNREACHED "%s was not loaded into %s; see the loader error above (setuid "
                               "programs cannot be preloaded)",
                     subcommand, launch->loaded, path[0] != '\0' ? path : launch->command[0]);
    } else if (passed != NULL) {
        flw_complain(UNREACHED
                     "%s (%d) loaded the driver past them: by RTLD_DEEPBIND, dlmopen or a "
                     "library in front of this one, or never called it",
                     subcommand, passed->name, (int)atomic_load(&passed->pid));
    } else if (flw_launch_has(launch, FLW_RUNPAGE_DRIVER)) {
        flw_complain(UNREACHED "the driver was loaded, but no hooked function was called",
                     subcommand);
    } else if (unended != NULL && launch->signal == 0) {
        flw_complain(UNREACHED
                     "no CUDA was used before %s (%d) ended by _exit or a signal, or executed "
                     "a program without LD_PRELOAD (static, setuid, or with another "
                     "environment)",
                     subcommand, unended->name, (int)atomic_load(&unended->pid));
    } else {
        flw_complain(UNREACHED "no CUDA was used, libcuda.so.1 was not loaded", subcommand);
    }
    return true;
}
