/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the subcommands of `fallow`, their table and its --help, and what they share: exit codes and one-line errors.
 */
#ifndef FLW_TOOL_COMMAND_H
#define FLW_TOOL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum flw_exit {
    FLW_EXIT_OK = 0,
    FLW_EXIT_FAILED = 1, /* the work could not be done, or showed something wrong */
    FLW_EXIT_USAGE = 2,  /* the command line is wrong; nothing was done */
    FLW_EXIT_LACKING = 3 /* the input is valid but incomplete */
};

/* argv[0] is the subcommand's name. Each returns an enum flw_exit. */
int flw_command_replay(int argc, char **argv);
int flw_command_report(int argc, char **argv);
/* Run report for view, with a page. *page is the default path; it becomes the path of the page, or NULL if there is
 * none. */
int flw_command_report_page(int argc, char **argv, const char *view_help, const char **page);
int flw_command_view(int argc, char **argv);
int flw_command_gen(int argc, char **argv);
int flw_command_trace(int argc, char **argv);
int flw_command_bench(int argc, char **argv);
int flw_command_doctor(int argc, char **argv);
int flw_command_layout(int argc, char **argv);
int flw_command_run(int argc, char **argv);
int flw_command_record(int argc, char **argv);
int flw_command_audit(int argc, char **argv);
int flw_command_top(int argc, char **argv);
int flw_command_help(int argc, char **argv);

struct flw_subcommand {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the name; an enum flw_exit */
    /* Return a word that may follow the name and has its own --help; NULL after the last. The member is NULL without
     * such words. */
    const char *(*get_word)(size_t index);
};

/* The table, set by main(); a NULL name ends it. */
extern const struct flw_subcommand *flw_subcommands;

/* Return the subcommand of that name, or NULL after a complaint. */
const struct flw_subcommand *flw_subcommand_find(const char *name);

void flw_subcommand_print_help(FILE *out);

/* Return a verb of `fallow trace`; NULL after the last. */
const char *flw_verb_name(size_t index);

/* Replace control characters, which terminals obey, by question marks. */
void flw_make_plain(char *text);

/* Print "fallow: " and one line to standard error, plain. Always returns false. */
bool flw_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print the same and return `code`. */
int flw_refuse(enum flw_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flush standard output. If a write failed, print a message, clear the error and return false: a full disk or a closed
 * pipe must not look like success. */
bool flw_flush_output(void);

/* Called before a complaint, to clear the line of progress; NULL: nothing to clear. */
extern void (*flw_before_complaint)(void);

/* Return the path to open for an input; for "-" that of standard input. */
const char *flw_input_place(const char *path);

/* True if two paths name one regular file, or will after both are written. Neither is "-". */
bool flw_is_same_file(const char *a, const char *b);

/* A search for the name that a mistyped word meant: the nearest of the offered names if the name begins with the word,
 * or differs by a slip: a letter too many, missing, wrong or swapped with the next one (two slips in six letters or
 * more). Borrows word and names. */
struct flw_guess {
    const char *word;
    size_t length;    /* of the word */
    const char *name; /* the nearest so far, or NULL */
    size_t distance;
};

void flw_guess_offer(struct flw_guess *guess, const char *name);

/* Write the text between a complaint and its advice to `out`, and return `out`: "; did you mean '--json'? " with the
 * lead "--", or "; ". */
#define FLW_GUESS_BYTES 96
const char *flw_guess_say(const struct flw_guess *guess, const char *lead,
                          char out[FLW_GUESS_BYTES]);

/* Return the index of a word among the names, which end with NULL. If there is none, print "COMPLAINT 'WORD'; did you
 * mean 'NAME'? ADVICE" and return SIZE_MAX. */
size_t flw_choose(const char *word, const char *(*name_at)(size_t index), const char *complaint,
                  const char *advice);

/* True if the text is one of the names, which end with NULL. */
bool flw_is_one_of(const char *text, const char *const *names);

/* True if the text begins with one of the beginnings, which end with NULL. */
bool flw_begins_with_any(const char *text, const char *const *beginnings);

/* Return the next line of a text, which may be NULL, and the line's length; NULL after the last line. */
const char *flw_next_line(const char **text, int *out_length);

/* Keep the dispositions of signals with which this program was started; restore them before an exec. */
void flw_signals_keep(void);
void flw_signals_restore(void);

/* Parse a decimal number that is the whole text. Returns false if it is none. */
bool flw_parse_count(const char *text, uint64_t *out_value);

/* Parse a byte, "0x5a" or "90"; *out_rest is the text after the number. Returns false if it is none. */
bool flw_parse_byte(const char *text, const char **out_rest, unsigned *out);

/* Parse bytes with an optional K, M, G or T (powers of 1,024; "MiB" and "MB" too). Returns false if it is none. */
bool flw_parse_bytes(const char *text, uint64_t *out_bytes);

#endif
