/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace`: its command line, and the verbs that read one form and write another.
 * Does not: know any form; src/trace does.
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

struct verb_options {
    const char *const *paths; /* what to read; "-" = standard input */
    size_t path_count;
    const char *out_path; /* -o; NULL = not given */
    const char *form;     /* --to; NULL = not given */
    int device;           /* -1 = the one with the most events */
    bool goes_on;         /* --damaged */
    bool wants_json;      /* --json */
};

struct verb {
    const char *name;
    const char *arguments;
    const char *summary;
    const char *text; /* of its help */
    const char *example;
    int (*run)(const struct verb_options *options);
    bool takes_many, takes_out, needs_out, takes_form, takes_json;
};

/* ---- reading and writing ---- */

static unsigned long long file_bytes(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) ? (unsigned long long)about.st_size
                                                             : 0;
}

static bool read_trace(const struct verb_options *options, const char *path,
                       struct flw_trace **out_trace)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    const char *place = flw_input_place(path);
    bool is_read = options->goes_on
                       ? flw_trace_read_damaged(place, options->device, out_trace, message)
                       : flw_trace_read(place, options->device, out_trace, message);
    flw_progress_hide();
    if (!is_read) {
        flw_complain("%s", message);
    }
    return is_read;
}

static bool read_whole(const struct verb_options *options, const char *path,
                       struct flw_trace **out_trace)
{
    if (!read_trace(options, path, out_trace)) {
        return false;
    }
    if ((*out_trace)->truncation != NULL) {
        flw_complain("%s: %s; what was read is used", path, (*out_trace)->truncation);
    }
    return true;
}

/* Read one form, write another. */
static int convert(const struct verb_options *options, const struct flw_trace_format *form,
                   bool says_what_it_read)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    const char *out_path = options->out_path != NULL ? options->out_path : "-";
    bool is_stdout = flw_output_is_stdout(out_path);
    if (is_stdout && form->is_binary && isatty(STDOUT_FILENO)) {
        flw_complain("%s is no text for a terminal; name a file with -o", form->name);
        return FLW_EXIT_USAGE;
    }
    if (!is_stdout && flw_is_same_file(out_path, flw_input_place(options->paths[0]))) {
        flw_complain("-o %s is the trace itself; name another file", out_path);
        return FLW_EXIT_USAGE;
    }
    if (!read_whole(options, options->paths[0], &trace)) {
        return FLW_EXIT_FAILED;
    }
    bool is_written = form->write(trace, out_path, message);
    flw_progress_hide();
    if (!is_written) {
        flw_complain("%s", message);
    } else if (says_what_it_read && !is_stdout) {
        unsigned long long bytes = file_bytes(out_path);
        printf("%s: %s, %zu event%s, %" PRIu64 " allocation%s, %zu block%s at the start", out_path,
               trace->format, trace->event_count, flw_plural(trace->event_count),
               trace->alloc_count, flw_plural(trace->alloc_count), trace->initial_count,
               flw_plural(trace->initial_count));
        if (trace->unknown_free_count + trace->lost_free_count > 0) {
            printf(", %" PRIu64 " free%s of unknown blocks left out, %" PRIu64 " lost ones put in",
                   trace->unknown_free_count, flw_plural(trace->unknown_free_count),
                   trace->lost_free_count);
        }
        printf("; %llu bytes\n", bytes);
    }
    flw_trace_destroy(trace);
    return is_written ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

static int run_info(const struct verb_options *options)
{
    struct flw_trace *trace;
    const char *path = options->paths[0];
    if (!read_whole(options, path, &trace)) {
        return FLW_EXIT_FAILED;
    }
    flw_trace_print_info(path, trace, file_bytes(path), options->wants_json);
    flw_trace_destroy(trace);
    return FLW_EXIT_OK;
}

static int run_dump(const struct verb_options *options)
{
    return convert(options, flw_trace_format_find("text"), false);
}

static int run_pack(const struct verb_options *options)
{
    return convert(options, flw_trace_format_find("ftrace"), false);
}

static int run_import(const struct verb_options *options)
{
    return convert(options, flw_trace_format_find("ftrace"), true);
}

static int run_export(const struct verb_options *options)
{
    const struct flw_trace_format *form =
        options->form != NULL ? flw_trace_format_find(options->form) : NULL;
    if (form == NULL) {
        if (options->form == NULL) {
            flw_complain("export needs --to text, chrome, rmm, pytorch or ftrace");
        } else {
            flw_complain("export needs --to text, chrome, rmm, pytorch or ftrace, not '%s'",
                         options->form);
        }
        return FLW_EXIT_USAGE;
    }
    return convert(options, form, false);
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

static enum flw_exit verify(const struct verb_options *options, const char *path)
{
    struct flw_trace *trace;
    enum flw_exit code = FLW_EXIT_FAILED;
    int bytes = 0;
    if (!read_trace(options, path, &trace)) {
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

/* Of several files the worst: one that is not whole, else one that lacks events. */
static int run_verify(const struct verb_options *options)
{
    enum flw_exit worst = FLW_EXIT_OK;
    for (size_t i = 0; i < options->path_count; i++) {
        flw_progress_place(i + 1, options->path_count);
        enum flw_exit code = verify(options, options->paths[i]);
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
     .takes_json = true},
    {.name = "dump",
     .arguments = "FILE [-o FILE]",
     .summary = "print a trace as lines of text",
     .text =
         "One line a record, for grep and diff. fallow trace pack turns the text back into the same\n"
         "trace.",
     .example = "fallow trace dump run.ftrace | grep '^O'",
     .run = run_dump,
     .takes_out = true},
    {.name = "pack",
     .arguments = "FILE -o FILE",
     .summary = "turn lines of text, or any other form, into a trace file",
     .text =
         "Writes a .ftrace with checksums: about 4 bytes an event; call stacks take up to a byte an\n"
         "event more, and each distinct stack is stored once.",
     .example = "fallow trace pack run.ftext -o run.ftrace",
     .run = run_pack,
     .takes_out = true,
     .needs_out = true},
    {.name = "import",
     .arguments = "FILE -o FILE",
     .summary = "turn the recording of another program into a trace file",
     .text =
         "Detects the form by content: PyTorch memory snapshots, PyTorch profiles (Kineto JSON), RMM logs,\n"
         "Fallow's own forms; also as .xz, .gz, .zst.",
     .example = "fallow trace import snapshot.pickle -o run.ftrace",
     .run = run_import,
     .takes_out = true,
     .needs_out = true},
    {.name = "export",
     .arguments = "FILE --to FORM [-o FILE]",
     .summary = "write a trace in another program's form",
     .text =
         "FORM is text, chrome (Perfetto opens it), rmm (RMM's replay reads it), pytorch (memory_viz\n"
         "opens it) or ftrace. Events that a form cannot express are left out.",
     .example = "fallow trace export run.ftrace --to pytorch -o run.pickle",
     .run = run_export,
     .takes_out = true,
     .takes_form = true},
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
     .takes_many = true},
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

static const struct verb *current; /* whose command line is read */

static void print_verb(void)
{
    const struct verb *verb = current;
    printf("usage: fallow trace %s %s [OPTIONS]\n\n%s: %s.\n%s\n\n", verb->name, verb->arguments,
           verb->name, verb->summary, verb->text);
    if (verb->takes_out) {
        printf("  -o, --output FILE  file to write%s\n",
               verb->needs_out ? "" : " (standard output)");
    }
    if (verb->takes_form) {
        printf("  --to FORM          text, chrome, rmm, pytorch, ftrace\n");
    }
    if (verb->takes_json) {
        printf("  --json             print one JSON object\n");
    }
    printf("  --trace-device N   device of the recording; default the one that ran out of\n"
           "                     memory first, else the busiest\n"
           "  --damaged          continue after damage in a .ftrace\n"
           "\nFILE may be -, standard input.\n"
           "\nexample: %s\n",
           verb->example);
}

/* ---- command line ---- */

static int parse(const struct verb *verb, int argc, char **argv, struct verb_options *options)
{
    const struct {
        bool is_its;
        struct flw_option option;
    } all[] = {
        {verb->takes_out,
         {.name = "output",
          .kind = FLW_OPTION_TEXT,
          .offset = offsetof(struct verb_options, out_path),
          .letter = 'o'}},
        {verb->takes_form,
         {.name = "to", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct verb_options, form)}},
        {verb->takes_json,
         {.name = "json",
          .kind = FLW_OPTION_SET,
          .offset = offsetof(struct verb_options, wants_json)}},
        {true,
         {.name = "damaged",
          .kind = FLW_OPTION_SET,
          .offset = offsetof(struct verb_options, goes_on)}},
        {true,
         {.name = "trace-device",
          .kind = FLW_OPTION_TAKE,
          .offset = offsetof(struct verb_options, device),
          .take = flw_option_take_trace_device}}};
    struct flw_option list[sizeof all / sizeof *all + 1] = {0};
    char name[32];
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].is_its) {
            list[count++] = all[i].option;
        }
    }
    snprintf(name, sizeof name, "trace %s", verb->name);
    current = verb;
    *options = (struct verb_options){.device = -1};
    int code = flw_options_read(
        &(struct flw_options){.command = name, .print_help = print_verb, .list = list}, options,
        argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    options->paths = (const char *const *)argv + optind;
    options->path_count = (size_t)(argc - optind);
    if (options->path_count == 0 || (options->path_count > 1 && !verb->takes_many)) {
        flw_complain("%s needs %s; see fallow %s --help", name,
                     options->path_count == 0 ? "a file" : "one file, not several", name);
        return FLW_EXIT_USAGE;
    }
    if (verb->needs_out && options->out_path == NULL) {
        flw_complain("%s needs -o FILE; see fallow %s --help", name, name);
        return FLW_EXIT_USAGE;
    }
    return FLW_OPTIONS_READ;
}

int flw_command_trace(int argc, char **argv)
{
    struct verb_options options;
    const char *name = argc > 1 ? argv[1] : "";
    struct flw_guess guess = {.word = name, .length = strlen(name)};
    char hint[FLW_GUESS_BYTES];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_verbs(stdout);
        return FLW_EXIT_OK;
    }
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            int code = parse(&verbs[i], argc - 1, argv + 1, &options);
            flw_progress_begin();
            return code == FLW_OPTIONS_READ ? verbs[i].run(&options) : code;
        }
        flw_guess_offer(&guess, verbs[i].name);
    }
    if (name[0] == '\0') {
        flw_complain("trace needs a verb; see fallow trace --help");
    } else {
        flw_complain("trace has no verb '%s'%ssee fallow trace --help", name,
                     flw_guess_say(&guess, "", hint));
    }
    return FLW_EXIT_USAGE;
}
