/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow help`: the help of a subcommand, and the man pages, which are made of what --help prints.
 * Does not: have a text of its own about any of them; nor the form of a page (manual.h).
 */
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
#include "common/subcommand.h"
#include "common/tool_host.h"
#include "help/manual.h"

static const char help[] =
    "usage: fallow help [SUBCOMMAND [WORD]]\n"
    "       fallow help --man [SUBCOMMAND]\n"
    "       fallow help --man-pages DIR\n"
    "\n"
    "Prints what fallow SUBCOMMAND WORD --help does, or the same as a man page, for man -l.\n"
    "\n"
    "  --man            the page of SUBCOMMAND, of fallow itself without\n"
    "  --man-pages DIR  all pages, each into a file of the folder: fallow.1, fallow-replay.1 ...\n"
    "\n"
    "exit status 0: printed; 1: a file cannot be written; 2: the command line is wrong\n"
    "\n"
    "example: fallow help trace info\n";

/* ---- the subcommands ---- */

const struct flw_subcommand *flw_subcommands;

const struct flw_subcommand *flw_subcommand_get(size_t index)
{
    return flw_subcommands[index].name == NULL ? NULL : &flw_subcommands[index];
}

const struct flw_subcommand *flw_subcommand_find(const char *name)
{
    struct flw_guess guess = {.word = name, .length = strlen(name)};
    char hint[FLW_GUESS_BYTES];
    for (size_t i = 0; flw_subcommands[i].name != NULL; i++) {
        if (strcmp(name, flw_subcommands[i].name) == 0) {
            return &flw_subcommands[i];
        }
        flw_guess_offer(&guess, flw_subcommands[i].name);
    }
    flw_complain("there is no subcommand '%s'%ssee fallow --help", name,
                 flw_guess_say(&guess, "", hint));
    return NULL;
}

void flw_subcommand_print_help(FILE *out)
{
    fprintf(out, "usage: fallow SUBCOMMAND [OPTIONS]\n\n");
    for (size_t i = 0; flw_subcommands[i].name != NULL; i++) {
        fprintf(out, "  %-8s %s\n", flw_subcommands[i].name, flw_subcommands[i].summary);
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

/* ---- what --help prints ---- */

static int run_help(const struct flw_subcommand *subcommand, const char *word)
{
    char name[64], inner[64], option[] = "--help";
    char *with_word[] = {name, inner, option, NULL}, *without[] = {name, option, NULL};
    snprintf(name, sizeof name, "%s", subcommand->name);
    snprintf(inner, sizeof inner, "%s", word == NULL ? "" : word);
    optind = 0; /* getopt starts anew */
    return word == NULL ? subcommand->run(2, without) : subcommand->run(3, with_word);
}

/* The whole of a file, which is short; NULL: it cannot be read. */
static char *read_all(int file)
{
    off_t length = lseek(file, 0, SEEK_END);
    char *text = flw_host_alloc(length < 0 ? 1 : (size_t)length + 1, 1);
    if (length >= 0 && pread(file, text, (size_t)length, 0) == length) {
        return text;
    }
    flw_host_free(text);
    return NULL;
}

/* The same as a text; the caller frees it. NULL: it could not be had. Standard output is a file in memory
 * meanwhile. */
static char *capture_help(const struct flw_subcommand *subcommand, const char *word)
{
    char *text = NULL;
    int memory = memfd_create("help", MFD_CLOEXEC), before = dup(STDOUT_FILENO);
    if (memory >= 0 && before >= 0 && fflush(stdout) == 0 && dup2(memory, STDOUT_FILENO) >= 0) {
        bool is_printed = run_help(subcommand, word) == FLW_EXIT_OK;
        is_printed = fflush(stdout) == 0 && is_printed;
        (void)dup2(before, STDOUT_FILENO);
        text = is_printed ? read_all(memory) : NULL;
    }
    if (memory >= 0) {
        close(memory);
    }
    if (before >= 0) {
        close(before);
    }
    return text;
}

/* ---- pages ---- */

static void page_name(const struct flw_subcommand *subcommand, char name[static 64])
{
    snprintf(name, 64, subcommand == NULL ? "fallow" : "fallow-%s",
             subcommand == NULL ? "" : subcommand->name);
}

static bool add_own_help(FILE *out)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "help: ");
    flw_subcommand_print_help(draft.file);
    if (!flw_draft_end(&draft, true, NULL)) {
        return false;
    }
    flw_manual_add(out, NULL, draft.text);
    free(draft.text);
    return true;
}

static bool add_help(FILE *out, const struct flw_subcommand *subcommand, const char *word)
{
    char heading[160];
    char *text = capture_help(subcommand, word);
    snprintf(heading, sizeof heading, "fallow %s %s", subcommand->name, word == NULL ? "" : word);
    if (text != NULL) {
        flw_manual_add(out, word == NULL ? NULL : heading, text);
    }
    flw_host_free(text);
    return text != NULL;
}

/* All pages but the own. A subcommand's begin with fallow's. */
static void add_references(FILE *out, const struct flw_subcommand *own)
{
    char name[64];
    page_name(own == NULL ? flw_subcommand_get(0) : NULL, name);
    flw_manual_begin_references(out, name);
    for (size_t i = own == NULL ? 1 : 0; flw_subcommand_get(i) != NULL; i++) {
        if (flw_subcommand_get(i) != own) {
            page_name(flw_subcommand_get(i), name);
            flw_manual_add_reference(out, name);
        }
    }
    flw_manual_end(out);
}

/* The page of a subcommand with those of its words, or of fallow itself (NULL). */
static bool print_page(FILE *out, const struct flw_subcommand *subcommand)
{
    char name[64];
    page_name(subcommand, name);
    if (subcommand == NULL) {
        flw_manual_begin(
            out, name,
            "see who holds GPU memory, run programs on Fallow, record and replay what they allocate");
        if (!add_own_help(out)) {
            return false;
        }
    } else {
        flw_manual_begin(out, name, subcommand->summary);
        if (!add_help(out, subcommand, NULL)) {
            return false;
        }
        for (size_t i = 0; subcommand->get_word != NULL && subcommand->get_word(i) != NULL; i++) {
            if (!add_help(out, subcommand, subcommand->get_word(i))) {
                return false;
            }
        }
    }
    add_references(out, subcommand);
    return ferror(out) == 0;
}

/* Whole, or not at all. */
static int write_page(const struct flw_subcommand *subcommand, const char *path)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "help: ");
    bool is_good = print_page(draft.file, subcommand);
    return flw_draft_end(&draft, is_good, path) ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

static int write_pages(const char *folder)
{
    char name[64], path[4096];
    const struct flw_subcommand *subcommand = NULL;
    for (size_t i = 0; i == 0 || subcommand != NULL; i++) {
        page_name(subcommand, name);
        int length = snprintf(path, sizeof path, "%s/%s.1", folder, name);
        if (length < 0 || (size_t)length >= sizeof path) {
            flw_complain("help: the name of the folder '%s' is too long", folder);
            return FLW_EXIT_FAILED;
        }
        if (write_page(subcommand, path) != FLW_EXIT_OK) {
            return FLW_EXIT_FAILED;
        }
        subcommand = flw_subcommand_get(i);
    }
    return FLW_EXIT_OK;
}

/* ---- command line ---- */

static bool has_word(const struct flw_subcommand *subcommand, const char *word)
{
    struct flw_guess guess = {.word = word, .length = strlen(word)};
    char hint[FLW_GUESS_BYTES];
    for (size_t i = 0; subcommand->get_word != NULL && subcommand->get_word(i) != NULL; i++) {
        if (strcmp(subcommand->get_word(i), word) == 0) {
            return true;
        }
        flw_guess_offer(&guess, subcommand->get_word(i));
    }
    flw_complain("'%s' has no help of its own%ssee fallow %s --help", word,
                 flw_guess_say(&guess, "", hint), subcommand->name);
    return false;
}

/* Of nothing, a subcommand, or one and a word. */
static int print_help_of(const struct flw_subcommand *subcommand, const char *word)
{
    if (subcommand == NULL) {
        flw_subcommand_print_help(stdout);
        return FLW_EXIT_OK;
    }
    if (word != NULL && !has_word(subcommand, word)) {
        return FLW_EXIT_USAGE;
    }
    return run_help(subcommand, word);
}

struct settings {
    bool is_page;
    const char *pages; /* a folder for all of them; NULL: no */
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
        flw_complain("help: that is too much at once; see fallow help --help");
        return FLW_EXIT_USAGE;
    }
    if (settings.pages != NULL) {
        return write_pages(settings.pages);
    }
    const struct flw_subcommand *subcommand = count > 0 ? flw_subcommand_find(words[0]) : NULL;
    if (count > 0 && subcommand == NULL) {
        return FLW_EXIT_USAGE;
    }
    return settings.is_page ? write_page(subcommand, "-")
                            : print_help_of(subcommand, count > 1 ? words[1] : NULL);
}
