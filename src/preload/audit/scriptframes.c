/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/scriptframes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_BYTES 4096 /* enough for the innermost frames; later writes fail */

/* Defined by the interpreter, if the program is one: bound when this library is loaded. */
extern void *PyGILState_GetThisThreadState(void) __attribute__((weak));
extern void _Py_DumpTraceback(int file, void *thread) __attribute__((weak));

/*   File "/path/train.py", line 31 in step */
static char *read_frame(char *line, const char **out_file, const char **out_number)
{
    static const char mark[] = "  File \"", middle[] = "\", line ";
    char *end = strstr(line, middle);
    if (strncmp(line, mark, sizeof mark - 1) != 0 || end == NULL) {
        return NULL;
    }
    *end = '\0';
    char *slash = strrchr(line, '/');
    *out_file = slash != NULL ? slash + 1 : line + sizeof mark - 1;
    *out_number = end + sizeof middle - 1;
    return line;
}

void flw_scriptframes_parse(char *text, char *out, size_t room)
{
    size_t used = 0;
    char *rest = NULL;
    const char *file = NULL, *number = NULL;
    unsigned count = 0;
    out[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && count < FLW_SCRIPTFRAMES_MAX;
         line = strtok_r(NULL, "\n", &rest)) {
        if (read_frame(line, &file, &number) == NULL) {
            continue;
        }
        int length =
            snprintf(out + used, room - used, "%s%s:%s", count > 0 ? "\n" : "", file, number);
        if (length < 0 || (size_t)length >= room - used) {
            out[used] = '\0';
            return;
        }
        used += (size_t)length;
        count++;
    }
}

void flw_scriptframes_take(char *out, size_t room)
{
    char text[TEXT_BYTES + 1];
    int saved = errno;
    out[0] = '\0';
    void *thread = PyGILState_GetThisThreadState != NULL && _Py_DumpTraceback != NULL
                       ? PyGILState_GetThisThreadState()
                       : NULL;
    int file = thread != NULL ? memfd_create("fallow-audit", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    if (file >= 0 && ftruncate(file, TEXT_BYTES) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_GROW) == 0) {
        _Py_DumpTraceback(file, thread);
        ssize_t length = pread(file, text, TEXT_BYTES, 0);
        text[length > 0 ? length : 0] = '\0';
        flw_scriptframes_parse(text, out, room);
    }
    if (file >= 0) {
        (void)close(file);
    }
    errno = saved;
}
