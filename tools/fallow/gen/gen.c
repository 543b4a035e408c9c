/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow gen`: the command line of the generators.
 * Does not: know what any of them does; each brings the list of its options.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/gen/gen.h"
#include "trace/io/output.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/options.h"
#include "common/progress.h"
#include "trace/formats/formats.h"

struct request {
    const struct flw_gen_kind *kind;
    struct flw_gen_values values;
    const char *words[FLW_GEN_OPTIONS_MAX]; /* of the options that are a choice; NULL: not given */
    const char *path;
    bool wants_list;
};

static const struct flw_gen_kind *current; /* whose command line is read */

/* ---- help ---- */

static void print_generators(FILE *out)
{
    fprintf(out, "usage: fallow gen GENERATOR [OPTIONS] [-o FILE]\n\n"
                 "Makes an allocation trace in the line text form; the same options make the same\n"
                 "bytes everywhere, and the trace's header has them all.\n\n");
    for (size_t i = 0; flw_gen_get(i) != NULL; i++) {
        fprintf(out, "  %-12s %s\n", flw_gen_get(i)->name, flw_gen_get(i)->summary);
    }
    fprintf(out, "\n  fallow gen GENERATOR --help   its options and an example\n");
}

#define HELP_COLUMNS 100

/* A name and a text, which goes on below itself where it is too long. */
static void print_item(const char *name, int indent, int column, const char *text)
{
    int width = HELP_COLUMNS - column;
    printf("%*s%-*s ", indent, "", column - indent - 1, name);
    while ((int)strlen(text) > width) {
        int end = width;
        while (end > 0 && text[end] != ' ') {
            end--;
        }
        end = end == 0 ? width : end;
        printf("%.*s\n%*s", end, text, column, "");
        text += end + (text[end] == ' ');
    }
    printf("%s\n", text);
}

/* "; default 4G" */
static void append_initial(const struct flw_gen_option *option, char *text, size_t room)
{
    static const char *const letters[] = {"", "K", "M", "G", "T"};
    uint64_t number = option->initial;
    unsigned unit = 0;
    while (option->kind == FLW_GEN_BYTES && number != 0 && number % 1024 == 0) {
        number /= 1024;
        unit++;
    }
    if (option->kind == FLW_GEN_CHOICE) {
        flw_append(text, room, "; default %s", option->words[number]);
    } else if (option->kind != FLW_GEN_FILE) {
        flw_append(text, room, "; default %" PRIu64 "%s", number, letters[unit]);
    }
}

static void print_words(const struct flw_gen_kind *kind)
{
    size_t longest = 0;
    for (size_t i = 0; kind->options[0].words[i] != NULL; i++) {
        size_t length = strlen(kind->options[0].words[i]);
        longest = length > longest ? length : longest;
    }
    for (size_t i = 0; kind->options[0].words[i] != NULL; i++) {
        print_item(kind->options[0].words[i], 2, (int)longest + 4, kind->word_help[i]);
    }
}

static void print_options(const struct flw_gen_kind *kind)
{
    static const char *const units[] = {"N", "BYTES", "WORD", "FILE"};
    for (size_t i = 0; i < kind->option_count; i++) {
        const struct flw_gen_option *option = &kind->options[i];
        char name[64], text[256] = "", choices[256] = "";
        snprintf(name, sizeof name, "--%s %s", option->name, units[option->kind]);
        flw_append(text, sizeof text, "%s", option->help);
        append_initial(option, text, sizeof text);
        print_item(name, 2, 22, text);
        if (option->kind == FLW_GEN_CHOICE && (i > 0 || kind->word_help == NULL)) {
            for (size_t w = 0; option->words[w] != NULL; w++) {
                flw_append(choices, sizeof choices, "%c%s", w == 0 ? '(' : ' ', option->words[w]);
            }
            flw_append(choices, sizeof choices, ")");
            print_item("", 2, 22, choices);
        }
    }
    print_item("-o, --output FILE", 2, 22,
               "where to write, packed where it ends in .xz, .gz or .zst, binary where in .ftrace; "
               "default standard output");
}

static void print_generator(void)
{
    const struct flw_gen_kind *kind = current;
    bool has_words = kind->word_help != NULL;
    printf("usage: fallow gen %s%s [OPTIONS] [-o FILE]\n\n%s.\n\n", kind->name,
           has_words ? " [WORD]" : "", kind->summary);
    if (has_words) {
        print_words(kind);
        printf("\n");
    }
    print_options(kind);
    if (has_words) {
        print_item("--list", 2, 22, "the words, one a line");
    }
    printf("\nexample: fallow gen %s %s\n", kind->name, kind->example);
}

/* ---- command line ---- */

static const char *word_of(const struct flw_gen_option *option, size_t index)
{
    const struct flw_gen_kind *kind = flw_gen_get(index);
    return option != NULL ? option->words[index] : kind == NULL ? NULL : kind->name;
}

/* The index of a word of the option, or of a generator if that is NULL. False: it has complained. */
static bool choose(const struct flw_gen_option *option, const char *text, uint64_t *out_number)
{
    struct flw_guess guess = {.word = text, .length = strlen(text)};
    char hint[FLW_GUESS_BYTES];
    for (*out_number = 0; word_of(option, *out_number) != NULL; ++*out_number) {
        if (strcmp(word_of(option, *out_number), text) == 0) {
            return true;
        }
        flw_guess_offer(&guess, word_of(option, *out_number));
    }
    const char *said = flw_guess_say(&guess, "", hint);
    if (option == NULL) {
        flw_complain("there is no generator '%s'%sfallow gen --help lists them", text, said);
    } else {
        flw_complain("--%s has no '%s'%sfallow gen %s --help lists what it has", option->name, text,
                     said, current->name);
    }
    return false;
}

/* The generator's options as every command has them. */
static void list_options(const struct flw_gen_kind *kind, struct flw_option *list)
{
    *list++ = (struct flw_option){.name = "output",
                                  .kind = FLW_OPTION_TEXT,
                                  .offset = offsetof(struct request, path),
                                  .letter = 'o'};
    if (kind->word_help != NULL) {
        *list++ = (struct flw_option){
            .name = "list", .kind = FLW_OPTION_SET, .offset = offsetof(struct request, wants_list)};
    }
    for (size_t i = 0; i < kind->option_count; i++) {
        const struct flw_gen_option *option = &kind->options[i];
        struct flw_option *own = list++;
        *own = (struct flw_option){.name = option->name,
                                   .kind = FLW_OPTION_TEXT,
                                   .least = option->low,
                                   .most = option->high};
        switch (option->kind) {
        case FLW_GEN_CHOICE:
            own->offset = offsetof(struct request, words) + i * sizeof(const char *);
            break;
        case FLW_GEN_FILE:
            own->offset = offsetof(struct request, values.paths) + i * sizeof(const char *);
            break;
        default:
            own->kind = option->kind == FLW_GEN_BYTES ? FLW_OPTION_SCALED : FLW_OPTION_COUNT;
            own->offset = offsetof(struct request, values.numbers) + i * sizeof(uint64_t);
        }
    }
}

/* argv[0] is the generator. */
static int parse(struct request *request, int argc, char **argv)
{
    uint64_t index;
    struct flw_option list[FLW_GEN_OPTIONS_MAX + 3] = {0};
    char name[32];
    if (!choose(NULL, argv[0], &index)) {
        return FLW_EXIT_USAGE;
    }
    const struct flw_gen_kind *kind = flw_gen_get(index);
    *request = (struct request){.kind = kind, .values = flw_gen_initial_values(kind), .path = "-"};
    current = kind;
    list_options(kind, list);
    snprintf(name, sizeof name, "gen %s", kind->name);
    int code = flw_options_read(
        &(struct flw_options){.command = name, .print_help = print_generator, .list = list},
        request, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (kind->word_help != NULL && optind < argc) { /* a bare word is the first option */
        request->words[0] = argv[optind++];
    }
    if (optind < argc) {
        flw_complain("%s cannot use '%s'; see fallow %s --help", name, argv[optind], name);
        return FLW_EXIT_USAGE;
    }
    for (size_t i = 0; i < kind->option_count; i++) {
        if (request->words[i] != NULL &&
            !choose(&kind->options[i], request->words[i], &request->values.numbers[i])) {
            return FLW_EXIT_USAGE;
        }
    }
    return FLW_OPTIONS_READ;
}

/* ---- together ---- */

/* The binary form where the name asks for it, packed or not. */
static bool is_binary(const char *path)
{
    static const char *const endings[] = {".ftrace", ".ftrace.xz", ".ftrace.gz", ".ftrace.zst"};
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending_bytes = strlen(endings[i]);
        if (bytes > ending_bytes && strcmp(path + bytes - ending_bytes, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* What a generator reads is kept. */
static bool spares_inputs(const struct request *request)
{
    for (size_t i = 0; i < request->kind->option_count; i++) {
        const char *input = request->values.paths[i];
        if (input != NULL && !flw_output_is_stdout(request->path) &&
            flw_is_same_file(request->path, input)) {
            flw_complain("-o %s is what --%s reads; name another file", request->path,
                         request->kind->options[i].name);
            return false;
        }
    }
    return true;
}

static int generate(const struct request *request)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    flw_progress_begin();
    if (!flw_gen_generate(request->kind, &request->values, &trace, message)) {
        flw_complain("gen %s: %s", request->kind->name, message);
        return FLW_EXIT_FAILED;
    }
    bool is_written = is_binary(request->path)
                          ? flw_trace_write_ftrace(trace, request->path, message)
                          : flw_trace_write_text(trace, request->path, message);
    flw_progress_hide();
    if (!is_written) {
        flw_complain("%s", message);
        clearerr(stdout); /* it has been said */
    } else if (!flw_output_is_stdout(request->path)) {
        fprintf(stderr, "%s: %zu event%s, %" PRIu64 " allocation%s, at most %" PRIu64 " MiB live\n",
                request->path, trace->event_count, flw_plural(trace->event_count),
                trace->alloc_count, flw_plural(trace->alloc_count),
                trace->peak_requested_bytes >> 20);
    }
    flw_trace_destroy(trace);
    return is_written ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_gen(int argc, char **argv)
{
    struct request request;
    if (argc < 2) {
        flw_complain("gen needs a generator; see fallow gen --help");
        return FLW_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_generators(stdout);
        return FLW_EXIT_OK;
    }
    int code = parse(&request, argc - 1, argv + 1);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (request.wants_list) {
        for (size_t i = 0; request.kind->options[0].words[i] != NULL; i++) {
            printf("%s\n", request.kind->options[0].words[i]);
        }
        return FLW_EXIT_OK;
    }
    return spares_inputs(&request) ? generate(&request) : FLW_EXIT_USAGE;
}
