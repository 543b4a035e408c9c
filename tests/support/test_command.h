/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the tests of the `fallow` command share: a folder of their own, a shell line run in it,
 * and what that printed. FALLOW_COMMAND names the program.
 */
#ifndef FLW_TESTS_UNIT_TEST_COMMAND_H
#define FLW_TESTS_UNIT_TEST_COMMAND_H

#include "support/test.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_TEXT_BYTES 65536

static char folder[] = "/tmp/fallow_command_XXXXXX";
static char out_text[COMMAND_TEXT_BYTES], error_text[COMMAND_TEXT_BYTES];

/* Two streams; 3 MiB alive at the start, then 2 + 1 + 4 MiB, of which at most 8 MiB live at once. */
static const char command_trace[] = "#fallow-trace 1\n"
                                    "device 0\n"
                                    "stream 0\n"
                                    "stream 7\n"
                                    "fields none\n"
                                    "P 0 0 3145728 0\n"
                                    "A 0 1 2097152 0\n"
                                    "U 0 1 1\n"
                                    "A 0 2 1048576 1\n"
                                    "F 0 1 0\n"
                                    "A 0 3 4194304 1\n"
                                    "F 0 2 1\n"
                                    "F 0 3 1\n";

/* A file of the folder. */
static inline void command_read(const char *name, char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, COMMAND_TEXT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
}

static inline void command_write(const char *name, const void *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Run a shell line in the folder, with the program in PATH and the path as $F. Returns the exit code. */
static inline int command_run(const char *line)
{
    char whole[2048];
    const char *program = getenv("FALLOW_COMMAND");
    snprintf(whole, sizeof whole, "cd '%s' && F='%s' && PATH='%.*s':$PATH && { %s\n} >out 2>err",
             folder, program, (int)(strrchr(program, '/') - program), program, line);
    int status = system(whole);
    assert_true(WIFEXITED(status));
    command_read("out", out_text);
    command_read("err", error_text);
    return WEXITSTATUS(status);
}

/* Return a formatted line, which lasts until the next one. */
__attribute__((format(printf, 1, 2))) static inline const char *command_line(const char *format,
                                                                             ...)
{
    static char line[2048];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    return line;
}

/* command_expect(line, texts ...): fail unless the line ends with 0 and prints all of the texts. */
#define command_expect(...) command_expect_all((const char *const[]){__VA_ARGS__, NULL})
static inline void command_expect_all(const char *const *line)
{
    int code = command_run(line[0]);
    if (code != 0) {
        fail_msg("%d from '%s': %s", code, line[0], error_text);
    }
    for (const char *const *text = line + 1; *text != NULL; text++) {
        flw_test_expect_in(out_text, *text);
    }
}

/* Fail unless the line ends with 0 and prints this text alone. */
static inline void command_expect_text(const char *line, const char *text)
{
    command_expect(line);
    assert_string_equal(out_text, text);
}

/* What ran last wrote one line of error, with `what` in it. */
static inline void command_expect_one_line(const char *what)
{
    flw_test_expect_in(error_text, what);
    const char *newline = strchr(error_text, '\n');
    assert_non_null(newline);
    assert_string_equal(newline + 1, "");
}

/* The same, and nothing else. */
static inline void command_expect_error(const char *line, int code, const char *what)
{
    int answer = command_run(line);
    if (answer != code || strstr(error_text, what) == NULL) {
        fail_msg("%d, not %d with '%s' in the error of '%s': %s", answer, code, what, line,
                 error_text);
    }
    command_expect_one_line(what);
    assert_string_equal(out_text, "");
}

/* The number behind `"key":` in out_text, behind `after`. */
static inline unsigned long long command_number(const char *after, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *from = strstr(out_text, after);
    const char *at = from == NULL ? NULL : strstr(from, quoted);
    if (at == NULL) {
        fail_msg("no '%s' behind '%s' in '%s'", quoted, after, out_text);
        return 0;
    }
    return strtoull(at + strlen(quoted), NULL, 10);
}

static inline int command_make_folder(void **state)
{
    if (getenv("FALLOW_COMMAND") == NULL) {
        fprintf(stderr, "FALLOW_COMMAND does not name the program to test\n");
        exit(FLW_TEST_SKIPPED);
    }
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int command_remove_folder(void **state)
{
    char line[256];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

#endif
