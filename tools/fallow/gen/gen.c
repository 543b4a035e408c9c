/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow gen`: the command line of the generators.
 * Does not: know what any of them does; each brings the list of its options.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/gen.h"

#include "common/command.h"

struct request {
    const struct flw_gen_kind *kind;
    struct flw_gen_values values;
    const char *path; /* NULL: standard output */
    bool has_word;    /* the first option was given as a bare word */
    bool wants_help, wants_list;
};

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

static void print_bytes(uint64_t bytes)
{
    static const char letters[] = "KMGT";
    unsigned shift = 0;
    while (shift < 40 && bytes != 0 && bytes % (UINT64_C(1) << (shift + 10)) == 0) {
        shift += 10;
    }
    if (shift == 0) {
        printf("%" PRIu64, bytes);
    } else {
        printf("%" PRIu64 "%c", bytes >> shift, letters[shift / 10 - 1]);
    }
}

static void print_initial(const struct flw_gen_option *option)
{
    if (option->kind == FLW_GEN_CHOICE) {
        printf("; default %s", option->words[option->initial]);
    } else if (option->kind == FLW_GEN_BYTES) {
        printf("; default ");
        print_bytes(option->initial);
    } else if (option->kind == FLW_GEN_COUNT) {
        printf("; default %" PRIu64, option->initial);
    }
}

static void print_words(const struct flw_gen_kind *kind, const char *indent)
{
    for (size_t i = 0; kind->options[0].words[i] != NULL; i++) {
        printf("%s%-24s %s\n", indent, kind->options[0].words[i], kind->word_help[i]);
    }
}

static void print_choices(const struct flw_gen_option *option)
{
    printf("%-21s ", "");
    for (size_t i = 0; option->words[i] != NULL; i++) {
        printf("%s%s", i == 0 ? "(" : " ", option->words[i]);
    }
    printf(")\n");
}

static void print_options(const struct flw_gen_kind *kind)
{
    static const char *const units[] = {"N", "BYTES", "WORD", "FILE"};
    for (size_t i = 0; i < kind->option_count; i++) {
        const struct flw_gen_option *option = &kind->options[i];
        char name[64];
        snprintf(name, sizeof name, "--%s %s", option->name, units[option->kind]);
        printf("  %-19s %s", name, option->help);
        print_initial(option);
        printf("\n");
        if (option->kind == FLW_GEN_CHOICE && (i > 0 || kind->word_help == NULL)) {
            print_choices(option);
        }
    }
    printf("  %-19s where to write, packed where it ends in .xz, .gz or .zst, binary where in\n"
           "                      .ftrace; default standard output\n",
           "-o FILE");
}

static void print_generator(const struct flw_gen_kind *kind)
{
    bool has_words = kind->word_help != NULL;
    printf("usage: fallow gen %s%s [OPTIONS] [-o FILE]\n\n%s.\n\n", kind->name,
           has_words ? " [WORD]" : "", kind->summary);
    if (has_words) {
        print_words(kind, "  ");
        printf("\n");
    }
    print_options(kind);
    if (has_words) {
        printf("  %-19s the words, one a line\n", "--list");
    }
    printf("\nexample: fallow gen %s %s\n", kind->name, kind->example);
}

/* ---- command line ---- */

static bool parse_choice(const struct flw_gen_kind *kind, const struct flw_gen_option *option,
                         const char *text, uint64_t *out_number)
{
    for (uint64_t i = 0; option->words[i] != NULL; i++) {
        if (strcmp(option->words[i], text) == 0) {
            *out_number = i;
            return true;
        }
    }
    flw_complain("--%s has no '%s'; fallow gen %s --help lists what it has", option->name, text,
                 kind->name);
    return false;
}

static bool parse_number(const struct flw_gen_option *option, const char *text,
                         uint64_t *out_number)
{
    bool is_bytes = option->kind == FLW_GEN_BYTES;
    bool is_number =
        is_bytes ? flw_parse_bytes(text, out_number) : flw_parse_count(text, out_number);
    if (is_number && *out_number >= option->low && *out_number <= option->high) {
        return true;
    }
    flw_complain("--%s '%s' is not a number%s from %" PRIu64 " to %" PRIu64, option->name, text,
                 is_bytes ? " of bytes, such as 64M," : "", option->low, option->high);
    return false;
}

static bool set_option(struct request *request, size_t index, const char *text)
{
    const struct flw_gen_option *option = &request->kind->options[index];
    switch (option->kind) {
    case FLW_GEN_CHOICE:
        return parse_choice(request->kind, option, text, &request->values.numbers[index]);
    case FLW_GEN_FILE:
        request->values.paths[index] = text;
        return true;
    default:
        return parse_number(option, text, &request->values.numbers[index]);
    }
}

static bool parse_word(struct request *request, const char *word)
{
    const struct flw_gen_kind *kind = request->kind;
    if (kind->word_help == NULL || request->has_word) {
        flw_complain("gen %s cannot use '%s'; see fallow gen %s --help", kind->name, word,
                     kind->name);
        return false;
    }
    request->has_word = true;
    return set_option(request, 0, word);
}

static bool is_one_of(const char *text, const char *first, const char *second)
{
    return strcmp(text, first) == 0 || strcmp(text, second) == 0;
}

static bool parse_one(struct request *request, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    const struct flw_gen_kind *kind = request->kind;
    if (is_one_of(word, "--help", "-h")) {
        request->wants_help = true;
        return true;
    }
    if (strcmp(word, "--list") == 0 && kind->word_help != NULL) {
        request->wants_list = true;
        return true;
    }
    if (word[0] != '-') {
        return parse_word(request, word);
    }
    bool is_output = is_one_of(word, "-o", "--output");
    size_t index =
        strncmp(word, "--", 2) == 0 ? flw_gen_find_option(kind, word + 2) : kind->option_count;
    if (!is_output && index == kind->option_count) {
        flw_complain("gen %s has no option '%s'; see fallow gen %s --help", kind->name, word,
                     kind->name);
        return false;
    }
    if (*i + 1 >= argc) {
        flw_complain("%s needs a value; see fallow gen %s --help", word, kind->name);
        return false;
    }
    const char *value = argv[++*i];
    if (is_output) {
        request->path = value;
        return true;
    }
    return set_option(request, index, value);
}

static bool parse(struct request *request, int argc, char **argv)
{
    *request = (struct request){.kind = flw_gen_find(argv[1]), .path = "-"};
    if (request->kind == NULL) {
        flw_complain("there is no generator '%s'; fallow gen --help lists them", argv[1]);
        return false;
    }
    request->values = flw_gen_initial_values(request->kind);
    for (int i = 2; i < argc; i++) {
        if (!parse_one(request, argc, argv, &i)) {
            return false;
        }
    }
    return true;
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

static int generate(const struct request *request)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    if (!flw_gen_generate(request->kind, &request->values, &trace, message)) {
        flw_complain("gen %s: %s", request->kind->name, message);
        return FLW_EXIT_FAILED;
    }
    bool is_written = is_binary(request->path)
                          ? flw_trace_write_ftrace(trace, request->path, message)
                          : flw_trace_write_text(trace, request->path, message);
    if (!is_written) {
        flw_complain("%s", message);
        clearerr(stdout); /* it has been said */
    } else if (strcmp(request->path, "-") != 0) {
        fprintf(stderr, "%s: %zu events, %" PRIu64 " allocations, at most %" PRIu64 " MiB live\n",
                request->path, trace->event_count, trace->alloc_count,
                trace->peak_requested_bytes >> 20);
    }
    flw_trace_destroy(trace);
    return is_written ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_gen(int argc, char **argv)
{
    struct request request;
    if (argc < 2 || is_one_of(argv[1], "--help", "-h")) {
        print_generators(argc < 2 ? stderr : stdout);
        return argc < 2 ? FLW_EXIT_USAGE : FLW_EXIT_OK;
    }
    if (!parse(&request, argc, argv)) {
        return FLW_EXIT_USAGE;
    }
    if (request.wants_help) {
        print_generator(request.kind);
        return FLW_EXIT_OK;
    }
    if (request.wants_list) {
        for (size_t i = 0; request.kind->options[0].words[i] != NULL; i++) {
            printf("%s\n", request.kind->options[0].words[i]);
        }
        return FLW_EXIT_OK;
    }
    return generate(&request);
}
