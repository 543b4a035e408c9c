/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow help`: the help of a subcommand, and man pages, made of the texts that --help prints: every word of
 * these, in their order.
 * Does not: have a text of its own about a subcommand.
 *
 * A help text is lines: "usage: ...", paragraphs at the margin, lists (two blanks, the name, two blanks or more, the
 * text; further lines of the text are indented as the text), "exit status ..." or "exit code ...", "example: ...". A
 * word alone at the margin is the heading of a list.
 */
#include <ctype.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/command.h"
#include "common/draft.h"
#include "common/options.h"
#include "common/tool_host.h"
#include "fallow/fallow.h"

static const char help[] =
    "usage: fallow help [SUBCOMMAND [WORD]]\n"
    "       fallow help --man [SUBCOMMAND]\n"
    "       fallow help --man-pages DIR\n"
    "\n"
    "Prints the help of fallow SUBCOMMAND WORD --help, or a man page of it, for man -l.\n"
    "\n"
    "  --man            the page of SUBCOMMAND, of fallow itself without\n"
    "  --man-pages DIR  all pages, each into a file of the folder: fallow.1, fallow-replay.1 ...\n"
    "\n"
    "exit status 0: printed; 1: a file cannot be written; 2: the command line is wrong\n"
    "\n"
    "example: fallow help trace info\n";

/* ---- the subcommands ---- */

const struct flw_subcommand *flw_subcommands;

/* Return the word with that number that has a help of its own, or NULL. */
static const char *word_of(const struct flw_subcommand *subcommand, size_t i)
{
    return subcommand->get_word == NULL ? NULL : subcommand->get_word(i);
}

static const char *subcommand_name(size_t index)
{
    return flw_subcommands[index].name;
}

const struct flw_subcommand *flw_subcommand_find(const char *name)
{
    size_t index = flw_choose(name, subcommand_name, "there is no subcommand", "see fallow --help");
    return index == SIZE_MAX ? NULL : &flw_subcommands[index];
}

static bool has_word(const struct flw_subcommand *subcommand, const char *word)
{
    struct flw_guess guess = {.word = word, .length = strlen(word)};
    char hint[FLW_GUESS_BYTES];
    for (size_t i = 0; word_of(subcommand, i) != NULL; i++) {
        if (strcmp(word_of(subcommand, i), word) == 0) {
            return true;
        }
        flw_guess_offer(&guess, word_of(subcommand, i));
    }
    return flw_complain("'%s' has no help of its own%ssee fallow %s --help", word,
                        flw_guess_say(&guess, "", hint), subcommand->name);
}

void flw_subcommand_print_help(FILE *out)
{
    fprintf(out, "usage: fallow SUBCOMMAND [OPTIONS]\n\n");
    for (const struct flw_subcommand *one = flw_subcommands; one->name != NULL; one++) {
        fprintf(out, "  %-8s %s\n", one->name, one->summary);
    }
    fprintf(
        out,
        "\n  fallow SUBCOMMAND --help   its options and an example\n"
        "  fallow --version           or -V\n"
        "\nOptions are written --name VALUE or --name=VALUE; arguments after -- are not options.\n"
        "Tables are as wide as the terminal, COLUMNS or 100 columns. Other letters than ASCII need a UTF-8\n"
        "locale, colours a terminal and no NO_COLOR.\n"
        "\nbegin with fallow doctor, or with a PyTorch memory snapshot, fallow report snapshot.pickle\n");
}

/* Print the output of `fallow SUBCOMMAND WORD --help`; either may be NULL. */
static int print_help(const struct flw_subcommand *subcommand, const char *word)
{
    char name[64], inner[64], option[] = "--help";
    char *with_word[] = {name, inner, option, NULL}, *without[] = {name, option, NULL};
    if (subcommand == NULL) {
        flw_subcommand_print_help(stdout);
        return FLW_EXIT_OK;
    }
    snprintf(name, sizeof name, "%s", subcommand->name);
    snprintf(inner, sizeof inner, "%s", word == NULL ? "" : word);
    optind = 0; /* restart getopt */
    return word == NULL ? subcommand->run(2, without) : subcommand->run(3, with_word);
}

/* Return the same as a text, to free with flw_host_free; standard output is a file in memory meanwhile. Returns NULL if
 * that fails. */
static char *capture_help(const struct flw_subcommand *subcommand, const char *word)
{
    int memory = memfd_create("help", MFD_CLOEXEC), before = dup(STDOUT_FILENO);
    bool is_printed = memory >= 0 && before >= 0 && fflush(stdout) == 0 &&
                      dup2(memory, STDOUT_FILENO) >= 0 &&
                      print_help(subcommand, word) == FLW_EXIT_OK;
    is_printed = fflush(stdout) == 0 && is_printed;
    (void)dup2(before, STDOUT_FILENO);
    (void)close(before);
    off_t length = is_printed ? lseek(memory, 0, SEEK_END) : 0;
    char *text = flw_host_alloc((size_t)length + 1, 1);
    is_printed = is_printed && pread(memory, text, (size_t)length, 0) == length;
    (void)close(memory);
    if (!is_printed) {
        flw_host_free(text);
        text = NULL;
    }
    return text;
}

/* ---- one help text as roff ---- */

struct manual {
    FILE *out;
    char **lines;
    size_t line_count, i; /* i: the line to print next */
    bool is_part;      /* the text has a section of its own, and its headings are those of parts */
    bool is_at_usage;  /* no description has begun */
    bool has_options;  /* the heading of the options has been printed */
    bool has_ended;    /* exit status or example: further options belong there */
    bool is_in_nested; /* a list inside of an item */
};

/* Print text between markup. Escapes keep quotes and hyphens, and nothing in the text becomes a request. */
static void put(FILE *out, const char *before, const char *text, size_t length, const char *after)
{
    static const char special[] = "\\-'`^~";
    static const char *const escapes[] = {"\\e", "\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
    fputs(before, out);
    fputs(length > 0 && text[0] == '.' ? "\\&" : "", out);
    for (size_t i = 0; i < length; i++) {
        const char *at = memchr(special, text[i], sizeof special - 1);
        if (at != NULL) {
            fputs(escapes[at - special], out);
        } else {
            fputc(text[i], out);
        }
    }
    fputs(after, out);
}

static void put_line(const struct manual *manual, const char *text)
{
    put(manual->out, "", text, strlen(text), "\n");
}

/* Print a name in capitals; of the heading of a part, only the first letter. */
static void put_capitals(FILE *out, const char *before, const char *name, bool is_part,
                         const char *after)
{
    char capitals[160];
    size_t length = strnlen(name, sizeof capitals);
    for (size_t i = 0; i < length; i++) {
        capitals[i] = is_part && i > 0 ? name[i] : (char)toupper((unsigned char)name[i]);
    }
    put(out, before, capitals, length, after);
}

static void put_heading(const struct manual *manual, const char *name)
{
    put_capitals(manual->out, manual->is_part ? ".SS \"" : ".SH \"", name, manual->is_part, "\"\n");
}

static bool is_option(const char *text)
{
    return text[0] == '-' && (text[1] == '-' || isalpha((unsigned char)text[1]));
}

static size_t indent_of(const char *line)
{
    return strspn(line, " ");
}

/* Return the length of the field that ends before two blanks or at the end. */
static size_t field_length(const char *text)
{
    const char *gap = strstr(text, "  ");
    return gap == NULL ? strlen(text) : (size_t)(gap - text);
}

/* Return the field after that, or an empty text. */
static const char *next_field(const char *text)
{
    text += field_length(text);
    return text + indent_of(text);
}

/* Return the rest of the line if it begins so, else NULL. */
static const char *rest_after(const char *line, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(line, beginning, length) == 0 ? line + length : NULL;
}

static void begin_description(struct manual *manual)
{
    if (manual->is_at_usage) {
        manual->is_at_usage = false;
        put_heading(manual, "description");
    }
}

static void put_usage(struct manual *manual, const char *text)
{
    size_t indent = strlen("usage: ");
    put_heading(manual, "synopsis");
    put_line(manual, text);
    for (; manual->i < manual->line_count && indent_of(manual->lines[manual->i]) == indent &&
           manual->lines[manual->i][indent] != '\0';
         manual->i++) {
        fputs(".br\n", manual->out);
        put_line(manual, manual->lines[manual->i] + indent);
    }
    manual->is_at_usage = true;
}

static void put_example(struct manual *manual, const char *text)
{
    put_heading(manual, "example");
    put(manual->out, ".nf\n", text, strlen(text), "\n.fi\n");
    manual->has_ended = true;
}

static void put_paragraph(struct manual *manual, const char *line)
{
    const char *next = manual->i < manual->line_count ? manual->lines[manual->i] : "";
    const char *status = rest_after(line, "exit status");
    status = status != NULL ? status : rest_after(line, "exit code");
    if (strpbrk(line, " :.") == NULL && next[0] == ' ') { /* the heading of a list */
        manual->is_at_usage = false;
        manual->has_options |= strcmp(line, "options") == 0;
        put_heading(manual, line);
        return;
    }
    if (status != NULL) {
        put_heading(manual, "exit status");
        manual->has_ended = true;
        line = status + strspn(status, ": ");
    } else {
        fputs(manual->is_at_usage ? "" : ".PP\n", manual->out);
        begin_description(manual);
    }
    put_line(manual, line);
    for (; manual->i < manual->line_count && strchr(" ", manual->lines[manual->i][0]) == NULL;
         manual->i++) {
        put_line(manual, manual->lines[manual->i]);
    }
}

/* ---- lists ---- */

static void put_nesting(struct manual *manual, bool is_in_nested)
{
    if (manual->is_in_nested != is_in_nested) {
        manual->is_in_nested = is_in_nested;
        fputs(is_in_nested ? ".RS\n" : ".RE\n", manual->out);
    }
}

static void put_tag(struct manual *manual, bool is_nested, const char *text, size_t length)
{
    put_nesting(manual, is_nested);
    put(manual->out, ".TP\n\\fB", text, length, "\\fR\n");
}

/* Print the text of an item: further options in the same line, a nested item (a word and its text), or plain text. */
static void put_fields(struct manual *manual, const char *text)
{
    while (*text != '\0') {
        const char *next = next_field(text);
        bool is_nested = !is_option(text) && *next != '\0' && !is_option(next);
        if (is_nested || is_option(text)) {
            put_tag(manual, is_nested, text, field_length(text));
        }
        if (is_nested) {
            text = next;
            next = next_field(text);
        }
        if (is_nested || !is_option(text)) {
            put(manual->out, "", text, field_length(text), "\n");
        }
        text = next;
    }
}

/* Print a name, or several options, and their text, which begins at `column`. */
static void put_item(struct manual *manual, const char *line, size_t column)
{
    const char *text = line + indent_of(line), *rest = next_field(text);
    size_t length = field_length(text);
    if (*rest == '\0' && strlen(line) > column && line[column - 1] == ' ') {
        rest = line + column; /* the name is so long that one blank is left */
        length = (size_t)(rest - text) - 1;
    }
    while (is_option(text) && is_option(rest)) {
        length = (size_t)(rest - text) + field_length(rest);
        rest = next_field(rest);
    }
    put_tag(manual, false, text, length);
    put_fields(manual, rest);
}

static void put_list(struct manual *manual, const char *first)
{
    size_t end = --manual->i, indent = indent_of(first), column = 0; /* of the texts; 0: no items */
    for (; end < manual->line_count && manual->lines[end][0] == ' '; end++) {
        const char *line = manual->lines[end], *text = line + indent_of(line);
        if (column == 0 && text == line + indent && *next_field(text) != '\0') {
            column = (size_t)(next_field(text) - line);
        }
    }
    begin_description(manual);
    if (!is_option(first + indent)) {
        fputs(column == 0 ? ".IP\n" : "", manual->out);
    } else if (!manual->has_options && !manual->has_ended) {
        manual->has_options = true;
        put_heading(manual, "options");
    }
    for (; manual->i < end; manual->i++) {
        const char *line = manual->lines[manual->i], *text = line + indent_of(line);
        if (column != 0 && text == line + indent) {
            put_item(manual, line, column);
        } else if (text < line + column) {
            put_nesting(manual, false);
            fputs(".br\n", manual->out);
            put_line(manual, text);
        } else {
            put_fields(manual, text);
        }
    }
    put_nesting(manual, false);
}

/* Print a help text, which is cut into its lines, as sections of the page; with a heading, as parts of a section of that
 * name. */
static void put_help(FILE *out, const char *heading, char *text)
{
    struct manual manual = {.out = out};
    size_t capacity = 0;
    for (char *line = text, *end; *line != '\0'; line = end) {
        end = strchrnul(line, '\n');
        FLW_HOST_ADD(manual.lines, manual.line_count, capacity, line);
        if (*end != '\0') {
            *end++ = '\0';
        }
    }
    if (heading != NULL) {
        put_heading(&manual, heading);
        manual.is_part = true;
    }
    while (manual.i < manual.line_count) {
        const char *line = manual.lines[manual.i++], *rest;
        if ((rest = rest_after(line, "usage: ")) != NULL) {
            put_usage(&manual, rest);
        } else if ((rest = rest_after(line, "example: ")) != NULL) {
            put_example(&manual, rest);
        } else if (line[0] == ' ') {
            put_list(&manual, line);
        } else if (line[0] != '\0') {
            put_paragraph(&manual, line);
        }
    }
    flw_host_free(manual.lines);
}

/* ---- pages ---- */

static const char *page_name(const struct flw_subcommand *subcommand, char name[static 64])
{
    snprintf(name, 64, "fallow%s%s", subcommand == NULL ? "" : "-",
             subcommand == NULL ? "" : subcommand->name);
    return name;
}

/* Print a reference to a page, unless the page is `own`. */
static void put_reference(FILE *out, const struct flw_subcommand *subcommand,
                          const struct flw_subcommand *own, const char **before)
{
    char name[64];
    if (subcommand != own) {
        page_name(subcommand, name);
        put(out, *before, name, strlen(name), "\\fR(1)");
        *before = ",\n\\fB";
    }
}

/* Print the page of a subcommand with its words, or of fallow itself (NULL). Returns false if that fails. */
static bool put_page(FILE *out, const struct flw_subcommand *subcommand)
{
    char name[64], heading[160];
    const char *word = NULL, *before = ".SH \"SEE ALSO\"\n\\fB";
    page_name(subcommand, name);
    put_capitals(out, ".\\\" Made by fallow help --man.\n.TH \"", name, false, "");
    fprintf(out, "\" 1 \"\" \"fallow %d.%d.%d\" \"User Commands\"\n", FALLOW_VERSION_MAJOR,
            FALLOW_VERSION_MINOR, FALLOW_VERSION_PATCH);
    put(out, ".nh\n.ad l\n.SH \"NAME\"\n", name, strlen(name), " \\- ");
    const char *summary =
        subcommand != NULL ? subcommand->summary
                           : "find who holds GPU memory, run programs on Fallow, record and replay "
                             "their allocations";
    put(out, "", summary, strlen(summary), "\n");
    for (size_t i = 0; i == 0 || word != NULL; i++) {
        char *text = capture_help(subcommand, word);
        if (text == NULL) {
            return false;
        }
        snprintf(heading, sizeof heading, "fallow %s %s",
                 subcommand == NULL ? "" : subcommand->name, word);
        put_help(out, word == NULL ? NULL : heading, text);
        flw_host_free(text);
        word = subcommand == NULL ? NULL : word_of(subcommand, i);
    }
    put_reference(out, NULL, subcommand, &before);
    for (const struct flw_subcommand *one = flw_subcommands; one->name != NULL; one++) {
        put_reference(out, one, subcommand, &before);
    }
    fputc('\n', out);
    return ferror(out) == 0;
}

/* Write a page whole, or not at all. */
static int write_page(const struct flw_subcommand *subcommand, const char *path)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "help: ");
    bool is_good = put_page(draft.file, subcommand);
    return flw_draft_end(&draft, is_good, path) ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

static int write_pages(const char *folder)
{
    char name[64], path[4096];
    int code = FLW_EXIT_OK;
    const struct flw_subcommand *subcommand = NULL, *next = flw_subcommands;
    do {
        int length = snprintf(path, sizeof path, "%s/%s.1", folder, page_name(subcommand, name));
        if (length < 0 || (size_t)length >= sizeof path) {
            return flw_refuse(FLW_EXIT_FAILED, "help: the name of the folder '%s' is too long",
                              folder);
        }
        code = write_page(subcommand, path);
        subcommand = next++;
    } while (subcommand->name != NULL && code == FLW_EXIT_OK);
    return code;
}

/* ---- command line ---- */

struct settings {
    bool is_page;
    const char *pages; /* the folder for all pages; NULL: none */
};

static const struct flw_option option_list[] = {
    {.name = "man", .kind = FLW_OPTION_SET, .offset = offsetof(struct settings, is_page)},
    {.name = "man-pages", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct settings, pages)},
    {.name = NULL}};

int flw_command_help(int argc, char **argv)
{
    struct settings settings = {.is_page = false};
    int code = flw_options_read(
        &(struct flw_options){.command = "help", .help = help, .list = option_list}, &settings,
        argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    char **words = argv + optind;
    int count = argc - optind, most = settings.pages != NULL ? 0 : settings.is_page ? 1 : 2;
    if (count > most || (settings.is_page && settings.pages != NULL)) {
        return flw_refuse(FLW_EXIT_USAGE, "help: too many arguments; see fallow help --help");
    }
    if (settings.pages != NULL) {
        return write_pages(settings.pages);
    }
    const struct flw_subcommand *subcommand = count > 0 ? flw_subcommand_find(words[0]) : NULL;
    if (count > 0 && (subcommand == NULL || (count > 1 && !has_word(subcommand, words[1])))) {
        return FLW_EXIT_USAGE;
    }
    return settings.is_page ? write_page(subcommand, "-")
                            : print_help(subcommand, count > 1 ? words[1] : NULL);
}
