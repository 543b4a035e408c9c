/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void flw_log_line(const char *format, ...)
{
    static const char prefix[] = "fallow: ";
    char line[1000];
    int saved_errno = errno;
    size_t room = sizeof line - sizeof prefix; /* the newline replaces the terminator */
    memcpy(line, prefix, sizeof prefix);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line + sizeof prefix - 1, room + 1, format, arguments);
    va_end(arguments);
    size_t bytes = wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room;
    bytes += sizeof prefix - 1;
    line[bytes++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written; /* a failure cannot be reported */
    errno = saved_errno;
}
