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
    FLW_EXIT_LACKING = 3 /* what there is is right, and not all that there was */
};

/* argv[0] is the subcommand's name. Each returns an enum flw_exit. */
int flw_command_replay(int argc, char **argv);
int flw_command_report(int argc, char **argv);
/* For view: as report, with a page. *page is the default place in, and the page's place out, or NULL if none was made. */
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
    /* What may stand behind the name and has a --help of its own; NULL behind the last. The member is NULL
     * where there is none. */
    const char *(*get_word)(size_t index);
};

/* The list, set by main(); the last has no name. */
extern const struct flw_subcommand *flw_subcommands;

/* Return the subcommand of that name, or NULL after a complaint. */
const struct flw_subcommand *flw_subcommand_find(const char *name);

void flw_subcommand_print_help(FILE *out);

/* The verbs of `fallow trace`; NULL behind the last. */
const char *flw_verb_name(size_t index);

/* Control characters, which terminals obey, become question marks. */
void flw_make_plain(char *text);

/* Print "fallow: " and one line to standard error, plain. Always returns false. */
bool flw_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print the same and return `code`. */
int flw_refuse(enum flw_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flush standard output. If a write failed, print a message, clear the error and return false: a full disk or a closed
 * pipe must not look like success. */
bool flw_flush_output(void);

/* What has to go from the terminal before that; NULL: nothing. */
extern void (*flw_before_complaint)(void);

/* Where the input that was asked for is read: "-" is standard input. */
const char *flw_input_place(const char *path);

/* Whether two paths lead to one regular file, or would once they are written. Neither is "-". */
bool flw_is_same_file(const char *a, const char *b);

/* Which name was meant by a word that is none of them: the nearest of those that are offered, where it is a
 * slip away (a letter too many, missing, wrong or swapped with the next; two in six letters and more), or
 * begins with the word. Borrows word and names. */
struct flw_guess {
    const char *word;
    size_t length;    /* of it */
    const char *name; /* NULL: nothing is near */
    size_t distance;
};

void flw_guess_offer(struct flw_guess *guess, const char *name);

/* What stands between the complaint and what to look at: "; did you mean '--json'? " with the lead "--", or
 * "; ". In `out`, which is returned. */
#define FLW_GUESS_BYTES 96
const char *flw_guess_say(const struct flw_guess *guess, const char *lead,
                          char out[FLW_GUESS_BYTES]);

/* Return the index of a word among the names, NULL after the last. SIZE_MAX: none; the error is "COMPLAINT 'WORD'; did you
 * mean 'NAME'? ADVICE". */
size_t flw_choose(const char *word, const char *(*name_at)(size_t index), const char *complaint,
                  const char *advice);

/* `names` ends with NULL. */
bool flw_is_one_of(const char *text, const char *const *names);

/* True if the text begins with one of them; `beginnings` ends with NULL. */
bool flw_begins_with_any(const char *text, const char *const *beginnings);

/* The dispositions of signals that this program was started with, before it becomes another. */
void flw_signals_keep(void);
void flw_signals_restore(void);

/* A whole decimal number, nothing before or behind it. */
bool flw_parse_count(const char *text, uint64_t *out_value);

/* A byte as "0x5a" or "90", and what follows the number. */
bool flw_parse_byte(const char *text, const char **out_rest, unsigned *out);

/* A count of bytes, with an optional K, M, G or T (powers of 1,024; "MiB" and "MB" too). */
bool flw_parse_bytes(const char *text, uint64_t *out_bytes);

#endif
