/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a look at a command's file tells of whether a library can be preloaded into it.
 */
#ifndef FLW_TOOL_PROGRAM_FILE_H
#define FLW_TOOL_PROGRAM_FILE_H

#include "common/launch.h"

enum flw_program_kind {
    FLW_PROGRAM_DYNAMIC, /* nothing speaks against it */
    FLW_PROGRAM_STATIC,  /* no loader */
    FLW_PROGRAM_FOREIGN, /* of another word size or processor than the library */
    FLW_PROGRAM_SECURE,  /* setuid, setgid or capabilities: the loader ignores LD_PRELOAD */
    FLW_PROGRAM_UNKNOWN  /* not found, not readable, or neither ELF nor a script */
};

struct flw_program_file {
    enum flw_program_kind kind;
    char path[FLW_LAUNCH_PATH_BYTES]; /* of the file that is loaded: a script's interpreter */
};

/* `name` is looked up as execvp does. */
void flw_program_look(const char *name, struct flw_program_file *out);

#endif
