/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow gen`: the command line of the generators, from their lists of options.
 * Does not: know any generator.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/gen/gen.h"
#include "trace/io/codec.h"
#include "trace/io/output.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/options.h"
#include "common/progress.h"
#include "trace/formats/formats.h"

struct request {
    const struct flw_gen_kind *kind;
    struct flw_gen_values values;
    const char *path;
    bool wants_list;
};

static const struct flw_gen_kind *current; /* the generator of the command line */

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

/* Print a name and a text, wrapped in a column. */
static void print_item(const char *name, int column, const char *text)
{
    int width = HELP_COLUMNS - column;
    printf("  %-*s ", column - 3, name);
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

/* Append "; default 4G". */
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
        print_item(kind->options[0].words[i], (int)longest + 4, kind->word_help[i]);
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
        print_item(name, 22, text);
        if (option->kind == FLW_GEN_CHOICE && (i > 0 || kind->word_help == NULL)) {
            for (size_t w = 0; option->words[w] != NULL; w++) {
                flw_append(choices, sizeof choices, "%c%s", w == 0 ? '(' : ' ', option->words[w]);
            }
            flw_append(choices, sizeof choices, ")");
            print_item("", 22, choices);
        }
    }
    print_item("-o, --output FILE", 22,
               "output file, packed if its name ends in .xz, .gz or .zst, binary if in .ftrace; "
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
        print_item("--list", 22, "the words, one a line");
    }
    printf("\nexample: fallow gen %s %s\n", kind->name, kind->example);
}

/* ---- command line ---- */

#define OPTION(...) FLW_OPTION(struct request, __VA_ARGS__)

/* List the generator's own options, then those of all generators. */
static void list_options(const struct flw_gen_kind *kind, struct flw_option *list)
{
    static const enum flw_option_kind kinds[] = {[FLW_GEN_COUNT] = FLW_OPTION_COUNT,
                                                 [FLW_GEN_BYTES] = FLW_OPTION_SCALED,
                                                 [FLW_GEN_CHOICE] = FLW_OPTION_CHOICE,
                                                 [FLW_GEN_FILE] = FLW_OPTION_TEXT};
    for (size_t i = 0; i < kind->option_count; i++) {
        const struct flw_gen_option *option = &kind->options[i];
        size_t number =
            offsetof(struct request, values.numbers) + (unsigned)option->letter * sizeof(uint64_t);
        *list++ = (struct flw_option){
            .name = option->name,
            .kind = kinds[option->kind],
            .offset = option->kind == FLW_GEN_FILE ? offsetof(struct request, values.path) : number,
            .least = option->low,
            .most = option->high,
            .words = option->words};
    }
    *list++ = (struct flw_option){OPTION("output", TEXT, path), .letter = 'o'};
    if (kind->word_help != NULL) {
        *list++ = (struct flw_option){OPTION("list", SET, wants_list)};
    }
}

/* argv[0] is the generator. */
static int parse(struct request *request, int argc, char **argv)
{
    struct flw_option list[FLW_GEN_OPTIONS_MAX + 3] = {0};
    char name[32];
    size_t index =
        flw_choose(argv[0], flw_gen_name, "there is no generator", "fallow gen --help lists them");
    if (index == SIZE_MAX) {
        return FLW_EXIT_USAGE;
    }
    const struct flw_gen_kind *kind = current = flw_gen_get(index);
    *request = (struct request){.kind = kind, .values = flw_gen_initial_values(kind), .path = "-"};
    list_options(kind, list);
    snprintf(name, sizeof name, "gen %s", kind->name);
    struct flw_options options = {.command = name, .print_help = print_generator, .list = list};
    int code = flw_options_read(&options, request, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    bool has_word = kind->word_help != NULL && optind < argc; /* of the first option */
    const char *word = has_word ? argv[optind++] : NULL;
    if (optind < argc) {
        return flw_refuse(FLW_EXIT_USAGE, "%s cannot use '%s'; see fallow %s --help", name,
                          argv[optind], name);
    }
    return word == NULL || flw_option_take(&options, &list[0], request, word) ? FLW_OPTIONS_READ
                                                                              : FLW_EXIT_USAGE;
}

/* ---- together ---- */

/* True if the name has the ending of the binary form, packed or not. */
static bool is_binary(const char *path)
{
    static const char ending[] = ".ftrace";
    bool is_packed = flw_packer_tell(path) != FLW_CODEC_PLAIN;
    size_t bytes = is_packed ? (size_t)(strrchr(path, '.') - path) : strlen(path);
    return bytes > sizeof ending - 1 &&
           memcmp(path + bytes - (sizeof ending - 1), ending, sizeof ending - 1) == 0;
}

/* Check that the output is not an input. Returns false after an error. */
static bool spares_input(const struct request *request)
{
    const char *input = request->values.path;
    const struct flw_gen_option *option = request->kind->options;
    if (input == NULL || flw_output_is_stdout(request->path) ||
        !flw_is_same_file(request->path, input)) {
        return true;
    }
    while (option->kind != FLW_GEN_FILE) {
        option++;
    }
    return flw_complain("-o %s is the input of --%s; name another file", request->path,
                        option->name);
}

static int generate(const struct request *request)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    flw_progress_begin();
    if (!flw_gen_generate(request->kind, &request->values, &trace, message)) {
        return flw_refuse(FLW_EXIT_FAILED, "gen %s: %s", request->kind->name, message);
    }
    bool is_written = flw_trace_write(trace, is_binary(request->path) ? "ftrace" : "text",
                                      request->path, message);
    flw_progress_hide();
    if (!is_written) {
        flw_complain("%s", message);
        clearerr(stdout); /* reported already */
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
        return flw_refuse(FLW_EXIT_USAGE, "gen needs a generator; see fallow gen --help");
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
    return spares_input(&request) ? generate(&request) : FLW_EXIT_USAGE;
}
