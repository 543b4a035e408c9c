/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and lines that fit: columns that go on below, names that have a line of their own,
 * letters of several bytes, changes of colour, sequences that would move a cursor. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

#include "common/tabular.h"
#include "common/terminal.h"

static char *text;
static size_t length;

static int drop(void **state)
{
    free(text);
    text = NULL;
    return 0;
}

/* Rows of three columns, the heading first; NULL behind the last. */
static void print(const char *const (*rows)[3], size_t width, const char *style)
{
    struct flw_table table = {.row_count = 0};
    drop(NULL);
    for (size_t i = 1; rows[i][0] != NULL; i++) {
        flw_table_row(&table, style);
        flw_table_name(&table, rows[0][0], rows[i][0]);
        flw_table_cell(&table, rows[0][1], rows[i][1]);
        flw_table_cell(&table, rows[0][2], rows[i][2]);
    }
    char columns[8];
    snprintf(columns, sizeof columns, "%zu", width);
    setenv("COLUMNS", columns, 1);
    FILE *out = open_memstream(&text, &length);
    flw_table_print(&table, out);
    fclose(out);
}

static const char *const plain[][3] = {
    {"name", "one", "other"}, {"a", "1", "2"}, {"longer", "1,000", "-"}, {NULL, NULL, NULL}};

TEST(a_table_that_fits_is_one)
{
    print(plain, 20, NULL);
    assert_string_equal(text, "name      one  other\n"
                              "a           1      2\n"
                              "longer  1,000      -\n");
}

TEST(what_does_not_fit_goes_on_below)
{
    static const char *const rows[][3] = {
        {"name", "one", "other"}, {"longest", "1,000", "-"}, {NULL, NULL, NULL}};
    static const char *const wide[][3] = {
        {"name", "one", "other"}, {"longest", "1,000,000,000", "-"}, {NULL, NULL, NULL}};
    print(rows, 20, NULL);
    assert_string_equal(text, "name       one\n"
                              "longest  1,000\n"
                              "\n"
                              "name     other\n"
                              "longest      -\n");
    print(wide, 20, NULL); /* a part has one column at least */
    assert_non_null(strstr(text, "longest  1,000,000,000\n"));
}

TEST(a_long_name_has_a_line_of_its_own)
{
    static const char *const rows[][3] = {{"name", "one", "other"},
                                          {"a", "1", "2"},
                                          {"a-name-that-is-longer-than-24-letters", "3", "4"},
                                          {NULL, NULL, NULL}};
    print(rows, 60, NULL);
    assert_string_equal(text, "name  one  other\n"
                              "a       1      2\n"
                              "a-name-that-is-longer-than-24-letters\n"
                              "        3      4\n");
}

TEST(letters_count_and_not_bytes)
{
    static const char *const rows[][3] = {
        {"name", "one", "other"}, {"m\u00e9moire", "1", "2"}, {NULL, NULL, NULL}};
    print(rows, 80, "\033[1m");
    assert_string_equal(text, "name     one  other\n"
                              "\033[1mm\u00e9moire    1      2\033[0m\n");
    assert_int_equal(flw_terminal_width("m\u00e9moire"), 7);
    assert_int_equal(flw_terminal_width("\033[1;31mred\033[0m"), 3);
    assert_int_equal(flw_terminal_width("\xff\xc3"), 2); /* invalid bytes become question marks */
}

/* ---- lines */

/* The output of a file for the terminal, with this COLUMNS. */
static void send(const char *columns, const char *locale, const char *what)
{
    char path[] = "/tmp/fallow_lines_XXXXXX";
    int file = mkstemp(path), before = dup(STDOUT_FILENO);
    drop(NULL);
    assert_true(file >= 0 && before >= 0);
    setenv("COLUMNS", columns, 1);
    setenv("LC_ALL", locale, 1);
    fflush(stdout);
    assert_true(dup2(file, STDOUT_FILENO) >= 0);
    FILE *out = flw_terminal_open(false);
    fputs(what, out);
    flw_terminal_close(out);
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    text = calloc(1, 4096);
    assert_non_null(text);
    assert_true(pread(file, text, 4095, 0) >= 0);
    close(file);
    close(before);
    unlink(path);
}

static void expect(const char *columns, const char *locale, const char *what, const char *want)
{
    send(columns, locale, what);
    assert_string_equal(text, want);
}

TEST(a_long_line_goes_on_in_the_next)
{
    expect("24", "C", "one two three four five\n", "one two three four five\n");
    expect("20", "C", "one two three four five\nand\n", "one two three four\n    five\nand\n");
    expect("20", "C", "  one two three four five", "  one two three four\n      five\n");
    expect("20", "C", "abcdefghijklmnopqrstuvwxyz\n", "abcdefghijklmnopqrst\n    uvwxyz\n");
    expect("20", "C", "\033[1mone two three four five\033[0m\n",
           "\033[1mone two three four\n    five\033[0m\n");
    expect("7", "C", "at least twenty columns, whatever is asked for\n",
           "at least twenty\n    columns,\n    whatever is\n    asked for\n");
    expect("20", "C", "", "");
    expect("20", "C", "\n\n", "\n\n");
}

TEST(letters_that_cannot_be_shown_are_question_marks)
{
    expect("40", "C", "m\u00e9moire \u8a18\n", "m?moire ?\n");
    expect("40", "en_GB.UTF-8", "m\u00e9moire \u8a18\n", "m\u00e9moire \u8a18\n");
    expect("40", "C.utf8",
           "\033[2J\xff\t\x7f\xc2\x9b"
           "end\xe8\xa8\n",
           "?[2J????end?\n");
    expect("40", "C.utf8", "\033[31mred\033[0m\n", "\033[31mred\033[0m\n");
}

FLW_TEST_MAIN(NULL, drop)
