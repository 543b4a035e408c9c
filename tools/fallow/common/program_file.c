/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program_file.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define SCRIPT_DEPTH 4 /* scripts whose interpreters are scripts; the kernel's own limit */
#define HEAD_BYTES   4096

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

static enum flw_program_kind kind_of_elf(int fd, const Elf64_Ehdr *header)
{
    static const uint16_t machine =
#if defined(__x86_64__)
        EM_X86_64;
#else
        EM_AARCH64;
#endif
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != machine) {
        return FLW_PROGRAM_FOREIGN;
    }
    if (!has_loader(fd, header)) {
        return FLW_PROGRAM_STATIC;
    }
    return is_secure(fd) ? FLW_PROGRAM_SECURE : FLW_PROGRAM_DYNAMIC;
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

void flw_program_look(const char *name, struct flw_program_file *out)
{
    *out = (struct flw_program_file){.kind = FLW_PROGRAM_UNKNOWN};
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
