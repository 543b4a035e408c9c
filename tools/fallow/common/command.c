/* SPDX-License-Identifier: Apache-2.0 */
#include "common/command.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The number at the front of text; NULL if there is none or it does not fit. */
static const char *read_number(const char *text, uint64_t *out_value)
{
    char *end = NULL;
    if (*text < '0' || *text > '9') {
        return NULL;
    }
    errno = 0;
    *out_value = strtoull(text, &end, 10);
    return errno == 0 ? end : NULL;
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
    const char *rest = read_number(text, out_value);
    return rest != NULL && *rest == '\0';
}

bool flw_parse_bytes(const char *text, uint64_t *out_bytes)
{
    static const char letters[] = "KMGT";
    const char *rest = read_number(text, out_bytes);
    if (rest == NULL) {
        return false;
    }
    const char *letter = *rest == '\0' ? NULL : strchr(letters, *rest);
    if (letter != NULL) {
        unsigned shift = 10 * (unsigned)(letter - letters + 1);
        if (*out_bytes > UINT64_MAX >> shift) {
            return false;
        }
        *out_bytes <<= shift;
        rest++;
        rest += *rest == 'i' && rest[1] == 'B' ? 2 : *rest == 'B' ? 1 : 0;
    }
    return *rest == '\0';
}
