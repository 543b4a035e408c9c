/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the tests of the `fallow` command share: a folder of their own, a shell line run in it,
 * and what that printed. FALLOW_COMMAND names the program.
 */
#ifndef FLW_TESTS_UNIT_TEST_COMMAND_H
#define FLW_TESTS_UNIT_TEST_COMMAND_H

#include "support/test.h"

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_TEXT_BYTES 65536

static char folder[] = "/tmp/fallow_command_XXXXXX";
static char out_text[COMMAND_TEXT_BYTES], error_text[COMMAND_TEXT_BYTES];

/* A file of the folder. */
static inline void command_read(const char *name, char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, COMMAND_TEXT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
}

/* Runs a shell line in the folder, the command's path as $F; its exit code. */
static inline int command_run(const char *line)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "cd '%s' && F='%s' && { %s\n} >out 2>err", folder,
             getenv("FALLOW_COMMAND"), line);
    int status = system(whole);
    assert_true(WIFEXITED(status));
    command_read("out", out_text);
    command_read("err", error_text);
    return WEXITSTATUS(status);
}

/* One line of error with `what` in it, and nothing else. */
static inline void command_expect_error(const char *line, int code, const char *what)
{
    assert_int_equal(command_run(line), code);
    if (strstr(error_text, what) == NULL) {
        fail_msg("'%s' is not in the error of '%s': %s", what, line, error_text);
    }
    char *newline = strchr(error_text, '\n');
    assert_non_null(newline);
    assert_int_equal(newline[1], '\0');
    assert_string_equal(out_text, "");
}

static inline int command_make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int command_remove_folder(void **state)
{
    char line[256];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

#endif
