/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running a program with a given environment and reading all the output.
 * Does not: judge it. */
#ifndef FLW_TESTS_PRELOAD_CHILD_H
#define FLW_TESTS_PRELOAD_CHILD_H

#include <stdbool.h>

#define CHILD_TEXT_BYTES 65536

struct child {
    int status; /* exit status; 1000 + signal number if killed */
    char out[CHILD_TEXT_BYTES], err[CHILD_TEXT_BYTES];
};

/* Run argv (argv[0] is a path, NULL ends it) with environment (likewise) and wait. SIGALRM ends a
 * child after a minute. Returns false if it could not be started. */
bool child_run(struct child *child, const char *const *argv, const char *const *environment);

/* The lines of `text` that do not begin with `prefix`, into `kept` of CHILD_TEXT_BYTES. */
void child_without(const char *text, const char *prefix, char *kept);

/* How many lines of `text` hold `part`. */
unsigned child_count(const char *text, const char *part);

#endif
