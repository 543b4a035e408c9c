/* SPDX-License-Identifier: Apache-2.0 */
#include "common/command.h"

#include "base/setting.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void flw_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("fallow: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static struct sigaction pipe_before, size_before, child_before;

void flw_signals_keep(void)
{
    (void)sigaction(SIGPIPE, NULL, &pipe_before);
    (void)sigaction(SIGXFSZ, NULL, &size_before);
    (void)sigaction(SIGCHLD, NULL, &child_before);
}

void flw_signals_restore(void)
{
    (void)sigaction(SIGPIPE, &pipe_before, NULL);
    (void)sigaction(SIGXFSZ, &size_before, NULL);
    (void)sigaction(SIGCHLD, &child_before, NULL);
}

const char *flw_input_place(const char *path)
{
    return strcmp(path, "-") == 0 ? "/dev/stdin" : path;
}

bool flw_is_one_of(const char *text, const char *const *names)
{
    while (*names != NULL && strcmp(text, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

bool flw_parse_count(const char *text, uint64_t *out_value)
{
    const char *rest = flw_number_read(text, 10, out_value);
    return rest != NULL && *rest == '\0';
}

bool flw_parse_bytes(const char *text, uint64_t *out_bytes)
{
    const char *rest = flw_number_read(text, 10, out_bytes);
    const char *behind = rest != NULL ? flw_number_scale(rest, out_bytes) : NULL;
    if (behind == NULL) {
        return false;
    }
    if (behind != rest) {
        behind += *behind == 'i' && behind[1] == 'B' ? 2 : *behind == 'B';
    }
    return *behind == '\0';
}
