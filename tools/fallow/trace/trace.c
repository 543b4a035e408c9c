/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace`: the command line, and the verbs that convert and check traces.
 * Does not: know any form (src/trace).
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/io/output.h"
#include "trace/trace/notes.h"

#include "common/command.h"
#include "common/figures.h"
#include "common/options.h"
#include "common/progress.h"
#include "info.h"
#include "trace/formats/formats.h"

struct request {
    const struct verb *verb;
    const char *const *paths; /* input files; "-" = standard input */
    size_t path_count;
    const char *out_path; /* -o; NULL = not given */
    const char *form;     /* --to; NULL = not given */
    int device;           /* -1 = the one with the most events */
    bool goes_on;         /* --damaged */
    bool wants_json;      /* --json */
};

enum verb_trait {
    TAKES_OUT = 1, /* default: standard output */
    NEEDS_OUT = 2,
    TAKES_FORM = 4,
    TAKES_JSON = 8,
    TAKES_MANY = 16,
    PRINTS_SUMMARY = 32, /* of the trace, after writing */
    EVERY_VERB = 64
};

struct verb {
    const char *name;
    const char *arguments;
    const char *summary;
    const char *text; /* of the help */
    const char *example;
    const char *form;                          /* to write; NULL: --to names it */
    int (*run)(const struct request *request); /* NULL: convert */
    unsigned traits;
};

static bool has(const struct verb *verb, unsigned traits)
{
    return ((verb->traits | EVERY_VERB) & traits) != 0;
}

/* ---- reading and writing ---- */

/* Return 0 for other than regular files. */
static uint64_t file_bytes(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
}

/* Read one of the paths, even if the trace is cut. Returns NULL after an error. */
static struct flw_trace *read_trace(const struct request *request, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    bool is_read = (request->goes_on ? flw_trace_read_damaged : flw_trace_read)(
        flw_input_place(path), request->device, &trace, message);
    flw_progress_hide();
    if (!is_read) {
        flw_complain("%s", message);
    }
    return is_read ? trace : NULL;
}

/* Read the first path, and complain if the trace is cut. Returns NULL after an error. */
static struct flw_trace *read_usable(const struct request *request)
{
    struct flw_trace *trace = read_trace(request, request->paths[0]);
    if (trace != NULL && trace->truncation != NULL) {
        flw_complain("%s: %s; using the part before", request->paths[0], trace->truncation);
    }
    return trace;
}

static void print_summary(const struct flw_trace *trace, const char *out_path)
{
    printf("%s: %s, %zu event%s, %" PRIu64 " allocation%s, %zu block%s at the start", out_path,
           trace->format, trace->event_count, flw_plural(trace->event_count), trace->alloc_count,
           flw_plural(trace->alloc_count), trace->initial_count, flw_plural(trace->initial_count));
    if (trace->unknown_free_count + trace->lost_free_count > 0) {
        printf(", %" PRIu64 " free%s of unknown blocks left out, %" PRIu64 " lost ones put in",
               trace->unknown_free_count, flw_plural(trace->unknown_free_count),
               trace->lost_free_count);
    }
    printf("; %" PRIu64 " bytes\n", file_bytes(out_path));
}

/* Read any form and write the verb's form. */
static int convert(const struct request *request)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    const struct verb *verb = request->verb;
    const char *word = verb->form != NULL ? verb->form : request->form;
    const struct flw_trace_format *form = word != NULL ? flw_trace_format_find(word) : NULL;
    const char *out_path = request->out_path != NULL ? request->out_path : "-";
    bool is_stdout = flw_output_is_stdout(out_path);
    if (form == NULL) {
        return flw_refuse(
            FLW_EXIT_USAGE, "export needs --to text, chrome, rmm, pytorch or ftrace%s%s%s",
            word != NULL ? ", not '" : "", word != NULL ? word : "", word != NULL ? "'" : "");
    }
    if (is_stdout && form->is_binary && isatty(STDOUT_FILENO)) {
        return flw_refuse(FLW_EXIT_USAGE, "%s is binary; name a file with -o", form->name);
    }
    if (!is_stdout && flw_is_same_file(out_path, flw_input_place(request->paths[0]))) {
        return flw_refuse(FLW_EXIT_USAGE, "-o %s is the trace itself; name another file", out_path);
    }
    struct flw_trace *trace = read_usable(request);
    if (trace == NULL) {
        return FLW_EXIT_FAILED;
    }
    bool is_written = flw_trace_write(trace, form->name, out_path, message);
    flw_progress_hide();
    if (!is_written) {
        flw_complain("%s", message);
    } else if (has(verb, PRINTS_SUMMARY) && !is_stdout) {
        print_summary(trace, out_path);
    }
    flw_trace_destroy(trace);
    return is_written ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

static int run_info(const struct request *request)
{
    struct flw_trace *trace = read_usable(request);
    if (trace == NULL) {
        return FLW_EXIT_FAILED;
    }
    const char *path = request->paths[0];
    flw_trace_print_info(path, trace, file_bytes(path), request->wants_json);
    flw_trace_destroy(trace);
    return FLW_EXIT_OK;
}

/* ---- verify ---- */

static void complain_of_gap(const char *path, const struct flw_trace_gap *gap)
{
    flw_complain(
        "%s: %" PRIu64 " of %" PRIu64 " events (%.3g %%) %s missing: the file is whole, and "
        "they were not recorded, or were lost before; FALLOW_RECORD_BLOCK_WHEN_FULL loses none",
        path, gap->missing_count, gap->event_count,
        100.0 * (double)gap->missing_count / (double)gap->event_count,
        gap->missing_count == 1 ? "is" : "are");
}

static enum flw_exit verify(const struct request *request, const char *path)
{
    struct flw_trace *trace = read_trace(request, path);
    enum flw_exit code = FLW_EXIT_FAILED;
    int bytes = 0;
    if (trace == NULL) {
        return code;
    }
    struct flw_trace_gap gap = flw_trace_gap_count(trace);
    if (trace->truncation != NULL) {
        flw_complain("%s: %s", path, trace->truncation);
    } else if (!flw_trace_is_valid(trace)) {
        flw_complain("%s: internal error: the reader produced an invalid trace (please report it)",
                     path);
    } else if (flw_notes_find(trace->notes, FLW_NOTES_OVERWRITTEN, &bytes) != NULL) {
        flw_complain("%s: " FLW_NOTES_OVERWRITTEN_SAYS, path);
        code = FLW_EXIT_LACKING;
    } else if (gap.missing_count > 0) {
        complain_of_gap(path, &gap);
        code = FLW_EXIT_LACKING;
    } else {
        printf("%s: whole, %s, %zu event%s, %" PRIu64 " allocation%s\n", path, trace->format,
               trace->event_count, flw_plural(trace->event_count), trace->alloc_count,
               flw_plural(trace->alloc_count));
        code = FLW_EXIT_OK;
    }
    flw_trace_destroy(trace);
    return code;
}

/* Return the worst result: a file is not whole, else a file lacks events. */
static int run_verify(const struct request *request)
{
    enum flw_exit worst = FLW_EXIT_OK;
    for (size_t i = 0; i < request->path_count; i++) {
        flw_progress_place(i + 1, request->path_count);
        enum flw_exit code = verify(request, request->paths[i]);
        worst = code == FLW_EXIT_FAILED || worst == FLW_EXIT_OK ? code : worst;
    }
    return worst;
}

/* ---- the verbs ---- */

static const struct verb verbs[] = {
    {.name = "info",
     .arguments = "FILE [--json]",
     .summary = "print the contents of a trace",
     .text =
         "Form, events, allocations, streams, blocks at the start, peaks, settings, missing events.\n"
         "With --json one object with the same keys for every trace:\n\n"
         "  schema, source, format, file_bytes, device, devices, truncation (null: all was read),\n"
         "  events, duration_ns, has_times, has_addresses, has_segments, allocations,\n"
         "  distinct_sizes, smallest_bytes, largest_bytes, start_blocks, start_bytes,\n"
         "  start_segments, start_reserved_bytes, end_blocks, end_bytes, peak_requested_bytes,\n"
         "  peak_reserved_bytes, segment_events, uses, out_of_memory, marks, phases, waits,\n"
         "  captures, cache_emptied, context_changes, missing_events, unknown_frees, lost_frees,\n"
         "  stacks, frames, records_with_stacks, streams, settings, header\n\n"
         "A value that the trace does not contain is null.",
     .example = "fallow trace info snapshot.pickle --json | jq .peak_requested_bytes",
     .run = run_info,
     .traits = TAKES_JSON},
    {.name = "dump",
     .arguments = "FILE [-o FILE]",
     .summary = "print a trace as lines of text",
     .text =
         "One line a record, for grep and diff. fallow trace pack turns the text back into the same\n"
         "trace.",
     .example = "fallow trace dump run.ftrace | grep '^O'",
     .form = "text",
     .traits = TAKES_OUT},
    {.name = "pack",
     .arguments = "FILE -o FILE",
     .summary = "turn lines of text, or any other form, into a trace file",
     .text =
         "Writes a .ftrace with checksums: about 4 bytes an event; call stacks take up to a byte an\n"
         "event more, and each distinct stack is stored once.",
     .example = "fallow trace pack run.ftext -o run.ftrace",
     .form = "ftrace",
     .traits = NEEDS_OUT},
    {.name = "import",
     .arguments = "FILE -o FILE",
     .summary = "turn the recording of another program into a trace file",
     .text =
         "Detects the form by content: PyTorch memory snapshots, PyTorch profiles (Kineto JSON), RMM logs,\n"
         "Fallow's own forms; also as .xz, .gz, .zst.",
     .example = "fallow trace import snapshot.pickle -o run.ftrace",
     .form = "ftrace",
     .traits = NEEDS_OUT | PRINTS_SUMMARY},
    {.name = "export",
     .arguments = "FILE --to FORM [-o FILE]",
     .summary = "write a trace in another program's form",
     .text =
         "FORM is text, chrome (Perfetto opens it), rmm (RMM's replay reads it), pytorch (memory_viz\n"
         "opens it) or ftrace. Events that a form cannot express are left out.",
     .example = "fallow trace export run.ftrace --to pytorch -o run.pickle",
     .traits = TAKES_OUT | TAKES_FORM},
    {.name = "verify",
     .arguments = "FILE...",
     .summary = "check every chunk and every rule, and whether events are missing",
     .text =
         "Prints a line for each damaged file (file, byte, reason) and for each intact file that lacks\n"
         "events (their number and share).\n\n"
         "exit status 0: intact; 3: a file lacks events, which were not recorded or are lost; 1: a file is\n"
         "damaged or cannot be read; 2: the command line is wrong",
     .example = "fallow trace verify run.ftrace",
     .run = run_verify,
     .traits = TAKES_MANY},
};

#define VERB_COUNT (sizeof verbs / sizeof *verbs)

const char *flw_verb_name(size_t index)
{
    return index < VERB_COUNT ? verbs[index].name : NULL;
}

static void print_verbs(FILE *out)
{
    fprintf(out, "usage: fallow trace VERB FILE [OPTIONS]\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        fprintf(out, "  %-7s %s\n", verbs[i].name, verbs[i].summary);
    }
    fprintf(out, "\n  fallow trace VERB --help   its options and an example\n");
}

/* ---- command line ---- */

#define OPTION(...) FLW_OPTION(struct request, __VA_ARGS__)

static const struct verb_option {
    struct flw_option option;
    unsigned traits; /* of the verbs with this option */
    const char *help;
} all_options[] = {
    {{OPTION("output", TEXT, out_path), .letter = 'o'},
     TAKES_OUT,
     "  -o, --output FILE  file to write (standard output)\n"},
    {{OPTION("output", TEXT, out_path), .letter = 'o'},
     NEEDS_OUT,
     "  -o, --output FILE  file to write\n"},
    {{OPTION("to", TEXT, form)},
     TAKES_FORM,
     "  --to FORM          text, chrome, rmm, pytorch, ftrace\n"},
    {{OPTION("json", SET, wants_json)}, TAKES_JSON, "  --json             print one JSON object\n"},
    {{OPTION("trace-device", TAKE, device), .take = flw_option_take_trace_device},
     EVERY_VERB,
     "  --trace-device N   device of the recording; default the one that ran out of\n"
     "                     memory first, else the busiest\n"},
    {{OPTION("damaged", SET, goes_on)},
     EVERY_VERB,
     "  --damaged          continue after damage in a .ftrace\n"}};

#define OPTION_COUNT (sizeof all_options / sizeof *all_options)

static const struct verb *current; /* the verb of the command line */

static void print_verb(void)
{
    const struct verb *verb = current;
    printf("usage: fallow trace %s %s [OPTIONS]\n\n%s: %s.\n%s\n\n", verb->name, verb->arguments,
           verb->name, verb->summary, verb->text);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        fputs(has(verb, all_options[i].traits) ? all_options[i].help : "", stdout);
    }
    printf("\nFILE may be -, standard input.\n\nexample: %s\n", verb->example);
}

static int parse(struct request *request, int argc, char **argv)
{
    const struct verb *verb = current = request->verb;
    struct flw_option list[OPTION_COUNT + 1] = {0};
    char name[32];
    size_t count = 0;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (has(verb, all_options[i].traits)) {
            list[count++] = all_options[i].option;
        }
    }
    snprintf(name, sizeof name, "trace %s", verb->name);
    int code = flw_options_read(
        &(struct flw_options){.command = name, .print_help = print_verb, .list = list}, request,
        argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    request->paths = (const char *const *)argv + optind;
    request->path_count = (size_t)(argc - optind);
    if (request->path_count == 0 || (request->path_count > 1 && !has(verb, TAKES_MANY))) {
        return flw_refuse(FLW_EXIT_USAGE, "%s needs %s; see fallow %s --help", name,
                          request->path_count == 0 ? "a file" : "one file, not several", name);
    }
    if (has(verb, NEEDS_OUT) && request->out_path == NULL) {
        return flw_refuse(FLW_EXIT_USAGE, "%s needs -o FILE; see fallow %s --help", name, name);
    }
    return FLW_OPTIONS_READ;
}

int flw_command_trace(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '\0') {
        return flw_refuse(FLW_EXIT_USAGE, "trace needs a verb; see fallow trace --help");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_verbs(stdout);
        return FLW_EXIT_OK;
    }
    size_t index =
        flw_choose(argv[1], flw_verb_name, "trace has no verb", "see fallow trace --help");
    if (index == SIZE_MAX) {
        return FLW_EXIT_USAGE;
    }
    struct request request = {.verb = &verbs[index], .device = -1};
    int code = parse(&request, argc - 1, argv + 1);
    flw_progress_begin();
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    return request.verb->run != NULL ? request.verb->run(&request) : convert(&request);
}
