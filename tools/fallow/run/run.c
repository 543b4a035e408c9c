/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command lines of `fallow run` and `fallow record`.
 * Does not: hook anything (libfallow-preload.so).
 */
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/command.h"
#include "common/options.h"
#include "record/callstack.h"
#include "record/ftracewriter.h"
#include "run/run.h"
#include "trace/formats/formats.h"

static const char run_help[] =
    "usage: fallow run [OPTIONS] -- COMMAND [ARGUMENTS]\n"
    "\n"
    "Run an unmodified CUDA program on Fallow: libfallow-preload.so serves its calls of the driver's\n"
    "allocation functions. fallow ends as COMMAND does, with its exit status or signal, and prints the\n"
    "reason if the hooks were never reached.\n"
    "\n"
    "  --mode MODE       cache   Fallow's pools serve allocations (the default)\n"
    "                    strict  the same, but a free waits for the device, as cuMemFree does\n"
    "                    trace   record allocations and frees, change nothing\n"
    "                    off     change nothing\n"
    "  --trace FILE      write a recording; '%p' is replaced by the process number. The default mode is\n"
    "                    then trace\n"
    "  --stats FILE|-    write statistics at the end of each process that used CUDA, even if it was\n"
    "                    killed or called _exit: JSON to FILE, or one line to standard error\n"
    "  --poison BYTE     fill allocated memory, to find reads of memory that was never written\n"
    "  --compare         run twice with the patterns of --poison A,B (0x00,0xff) and without input, and\n"
    "                    compare exit status and standard output\n"
    "  --limit BYTES     most device memory to hold, and to show to the program (K, M, G, T: powers of\n"
    "                    1,024)\n"
    "  --sim[=SETTINGS]  run on the simulated driver, without a GPU, under the rule checker. A process\n"
    "                    prints the checker's report when it exits, but not after _exit or a signal.\n"
    "                    SETTINGS are those of FALLOW_SIMCUDA, such as devices=2,size=24G. Kernels\n"
    "                    cannot run: a launch fails\n"
    "  --set KEY:VALUE   any other setting of FALLOW\n"
    "  --exec            become COMMAND instead of waiting for it: nothing is printed afterwards\n"
    "  --library FILE    path of libfallow-preload.so, if it is not beside this program\n"
    "\n"
    "Options take precedence over the environment variable FALLOW.\n"
    "\n"
    "exit status: COMMAND's; 2: the command line is wrong; 126, 127: COMMAND cannot be run, or does not\n"
    "exist; with --compare 0: no difference, 1: a difference, or no hook was reached\n"
    "\n"
    "example: fallow run --stats - -- python3 train.py\n";

static const char record_help[] =
    "usage: fallow record [OPTIONS] -- COMMAND [ARGUMENTS]\n"
    "\n"
    "Run a CUDA program and record every allocation and free that it requests from the driver, for\n"
    "`fallow report`, `fallow replay` and `fallow trace`. Nothing else is changed. If a process is\n"
    "killed, its recording ends with the last flush: every 40 ms, or more often.\n"
    "\n"
    "  -o, --output FILE  write to FILE (fallow.ftrace); '%p' is replaced by the process number. More\n"
    "                     processes and devices get files of their own beside it\n"
    "  --mode MODE        trace (the default); cache or strict: record requests to Fallow's pools\n"
    "  --stacks[=DEPTH]   record call stacks: at most DEPTH (16) frames of C, and as many of Python;\n"
    "                     `fallow report` then lists owners by line of code\n"
    "  --enter-python     for stacks, acquire the interpreter in threads that released it (ctypes,\n"
    "                     cuda-python and PyTorch do). Not for a program in which a thread with the\n"
    "                     interpreter waits for a lock under which another thread allocates\n"
    "  --stats FILE|-     write statistics at the end of each process that used CUDA, even if it was\n"
    "                     killed or called _exit: JSON to FILE, or one line to standard error\n"
    "  --set KEY:VALUE    any other setting of FALLOW\n"
    "  --exec             become COMMAND instead of waiting for it: nothing is printed afterwards\n"
    "  --library FILE     path of libfallow-preload.so, if it is not beside this program\n"
    "\n"
    "exit status: COMMAND's; 2: the command line is wrong; 126, 127: COMMAND cannot be run, or does not\n"
    "exist\n"
    "\n"
    "example: fallow record -o run.ftrace -- ./program\n";

static const char *const modes[] = {"off", "trace", "cache", "strict", NULL};

struct patterns {
    unsigned bytes[2];
    unsigned count; /* given on the command line */
};

struct order {
    const char *mode, *trace, *stats, *library;
    struct flw_settings_text settings;
    struct patterns patterns;
    bool is_record, compares, replaces, has_stacks, enters_python, is_sim;
    const char *sim_settings; /* NULL: none */
    char sim_folder[64];      /* "": none */
    uint64_t began_ns;        /* since 1970 */
};

/* ---- values */

static bool take_poison(void *member, const char *text)
{
    struct patterns *patterns = member;
    const char *rest = text;
    *patterns = (struct patterns){.count = 1};
    bool is_right = flw_parse_byte(text, &rest, &patterns->bytes[0]);
    if (is_right && *rest == ',') {
        patterns->count = 2;
        is_right = flw_parse_byte(rest + 1, &rest, &patterns->bytes[1]);
    }
    return (is_right && *rest == '\0') ||
           flw_complain("--poison '%s': it takes a byte, such as 0x5a, or two with --compare",
                        text);
}

static bool take_limit(void *member, const char *text)
{
    uint64_t bytes;
    char digits[24];
    if (!flw_parse_bytes(text, &bytes) || bytes == 0) {
        return flw_complain("--limit '%s': it takes bytes, such as 8G", text);
    }
    snprintf(digits, sizeof digits, "%" PRIu64, bytes);
    return flw_settings_put(member, "limit", digits);
}

static bool take_stacks(void *member, const char *text)
{
    struct order *order = member;
    uint64_t depth = FLW_CALLSTACK_DEPTH_USUAL;
    char digits[24];
    bool is_number = text == NULL || flw_parse_count(text, &depth);
    if (!is_number || depth == 0 || depth > FLW_CALLSTACK_DEPTH_MOST) {
        return flw_complain("--stacks '%s': it takes a number of frames, 1 to %d", text,
                            FLW_CALLSTACK_DEPTH_MOST);
    }
    snprintf(digits, sizeof digits, "%" PRIu64, depth);
    order->has_stacks = true;
    return flw_settings_put(&order->settings, "stacks", digits);
}

static bool take_sim(void *member, const char *text)
{
    struct order *order = member;
    order->is_sim = true;
    order->sim_settings = text;
    return true;
}

/* ---- the command line */

#define OPTION(...) FLW_OPTION(struct order, __VA_ARGS__)
#define OPTIONS_OF_BOTH                                                                            \
    {OPTION("mode", TEXT, mode)}, {OPTION("stats", TEXT, stats)}, {OPTION("exec", SET, replaces)}, \
        {OPTION("library", TEXT, library)},                                                        \
    {                                                                                              \
        OPTION("set", TAKE, settings), .take = flw_settings_take                                   \
    }

static const struct flw_option run_options[] = {
    OPTIONS_OF_BOTH,
    {OPTION("trace", TEXT, trace)},
    {OPTION("poison", TAKE, patterns), .take = take_poison},
    {OPTION("compare", SET, compares)},
    {OPTION("limit", TAKE, settings), .take = take_limit},
    {.name = "sim", .kind = FLW_OPTION_TAKE, .take = take_sim, .may_stand_alone = true},
    {.name = NULL}};

static const struct flw_option record_options[] = {
    OPTIONS_OF_BOTH,
    {OPTION("output", TEXT, trace), .letter = 'o'},
    {OPTION("enter-python", SET, enters_python)},
    {.name = "stacks", .kind = FLW_OPTION_TAKE, .take = take_stacks, .may_stand_alone = true},
    {.name = NULL}};

/* Check the options; `words` are the command, after the last option. Returns false after an error. */
static bool check_order(const struct order *order, const char *name, const char *last,
                        char *const *words)
{
    unsigned count = order->patterns.count;
    bool has_files = order->replaces || order->trace != NULL || order->stats != NULL;
    uint64_t depth;
    if (words[0] != NULL && strcmp(last, "--stacks") == 0 && flw_parse_count(words[0], &depth)) {
        return flw_complain("record: '%s' is no command; write --stacks=%s, and COMMAND behind --",
                            words[0], words[0]);
    }
    if (order->mode != NULL && !flw_is_one_of(order->mode, modes + order->is_record)) {
        return flw_complain("there is no mode '%s'; there are%s trace, cache and strict",
                            order->mode, order->is_record ? "" : " off,");
    }
    const char *wrong =
        words[0] == NULL                 ? "no command; give one after --"
        : count == 2 && !order->compares ? "two patterns of poison need --compare"
        : order->compares && count == 1 ? "--compare needs two patterns, such as --poison 0x00,0xff"
        : order->compares && has_files
            ? "--compare runs the command twice, so not with --exec, --trace or --stats"
        : order->trace != NULL && strcmp(order->trace, "-") == 0
            ? "a trace is written to a file, not to '-'"
        : order->is_sim && order->replaces ? "--sim removes a folder afterwards, so not with --exec"
        : order->enters_python && !order->has_stacks ? "--enter-python is for --stacks"
                                                     : NULL;
    return wrong == NULL || flw_complain("%s: %s", name, wrong);
}

/* Check that the record can be written, before a program that may run for days. Returns false after an error. */
static bool check_place(const struct order *order, const char *name)
{
    char folder[PATH_MAX] = ".";
    struct stat facts;
    const char *path = order->trace;
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash != NULL) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + (slash == path), path);
    }
    if (path == NULL || strstr(folder, "%p") != NULL) {
        return true;
    }
    bool is_there = stat(path, &facts) == 0;
    if (is_there && S_ISDIR(facts.st_mode)) {
        return flw_complain("%s: '%.300s' is a folder; name a file in it", name, path);
    }
    if ((is_there ? access(path, W_OK) : access(folder, W_OK | X_OK)) != 0) {
        return flw_complain("%s: no record can be written to '%.300s': %s", name, path,
                            strerror(errno));
    }
    return true;
}

static bool put_settings(struct order *order)
{
    struct flw_settings_text *settings = &order->settings;
    char byte[8];
    snprintf(byte, sizeof byte, "0x%02x", order->patterns.bytes[0]);
    return flw_settings_put(settings, "mode", order->mode) &&
           flw_settings_put_file(settings, "trace", order->trace) &&
           flw_settings_put_file(settings, "stats", order->stats) &&
           flw_settings_put(settings, "enter_python", order->enters_python ? "1" : NULL) &&
           flw_settings_put(settings, "poison", order->patterns.count == 1 ? byte : NULL);
}

/* ---- the simulated driver */

/* Put a folder in which the driver is the simulated one in front of the loader's path, and set up the simulator. Returns
 * false after an error. */
static bool begin_sim(struct order *order)
{
    static const char *const names[] = {"libcuda.so.1", "libcuda.so"};
    char library[FLW_LAUNCH_PATH_BYTES], path[96], text[4096];
    const char *folders = getenv("LD_LIBRARY_PATH"), *given = getenv("FALLOW_SIMCUDA");
    const char *wanted = order->sim_settings != NULL ? order->sim_settings : given;
    bool is_set = wanted != NULL && *wanted != '\0';
    if (!flw_launch_find_simulator(library)) {
        return false;
    }
    strcpy(order->sim_folder, "/tmp/fallow-sim-XXXXXX");
    bool is_made = mkdtemp(order->sim_folder) != NULL;
    if (!is_made) {
        order->sim_folder[0] = '\0'; /* there is none to remove */
    }
    for (size_t i = 0; is_made && i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", order->sim_folder, names[i]);
        is_made = symlink(library, path) == 0;
    }
    if (!is_made) {
        return flw_complain("--sim: cannot make a folder in /tmp: %s", strerror(errno));
    }
    bool has_folders = folders != NULL && *folders != '\0';
    int length = snprintf(text, sizeof text, "%s%s%s", order->sim_folder, has_folders ? ":" : "",
                          has_folders ? folders : "");
    bool fits = length < (int)sizeof text && setenv("LD_LIBRARY_PATH", text, 1) == 0;
    length = snprintf(text, sizeof text, "check%s%s", is_set ? "," : "", is_set ? wanted : "");
    fits = fits && length < (int)sizeof text && setenv("FALLOW_SIMCUDA", text, 1) == 0;
    return fits || flw_complain("--sim: LD_LIBRARY_PATH or FALLOW_SIMCUDA is too long");
}

static void end_sim(const struct order *order)
{
    char path[96];
    if (order->sim_folder[0] != '\0') {
        snprintf(path, sizeof path, "%s/libcuda.so", order->sim_folder);
        (void)unlink(path);
        snprintf(path, sizeof path, "%s/libcuda.so.1", order->sim_folder);
        (void)unlink(path);
        (void)rmdir(order->sim_folder);
    }
}

/* ---- afterwards */

/* True if the file begins like a recording; other files may be large, so read no more. */
static bool begins_as_recording(const char *path)
{
    char magic[sizeof FLW_FTRACE_MAGIC - 1];
    FILE *file = fopen(path, "re");
    bool is_one = file != NULL && fread(magic, sizeof magic, 1, file) == 1 &&
                  memcmp(magic, FLW_FTRACE_MAGIC, sizeof magic) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_one;
}

/* Name the frames of C while their modules are here. If that fails, the file stays unchanged. So do files that this run
 * did not record, but converted, copied or found. */
static void name_frames(const struct order *order, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    struct stat facts;
    bool has_memory = true;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        facts.st_mtime < (time_t)(order->began_ns / 1000000000) || !begins_as_recording(path)) {
        return;
    }
    bool is_done = flw_trace_read(path, -1, &trace, message);
    bool is_ours = is_done && trace->notes != NULL &&
                   strncmp(trace->notes, "recorder fallow\n", 16) == 0 &&
                   trace->begin_ns >= order->began_ns;
    if (is_ours && trace->truncation != NULL) {
        flw_complain(
            "record: %s is not whole, its stacks keep modules and offsets in place of names", path);
    } else if (is_ours && flw_names_find(trace, &has_memory) > 0) {
        is_done = flw_trace_write(trace, "ftrace", path, message);
    }
    if (!is_done || !has_memory) {
        flw_complain("record: the stacks keep modules and offsets in place of names: %s",
                     has_memory ? message : "no host memory");
    }
    flw_trace_destroy(trace);
}

/* Write a pattern for the file's name and for those of other processes and devices: digits for "%p", and any text before
 * the name's ending. Returns false if the pattern is too long. */
static bool compose_pattern(const char *path, char *out, size_t room)
{
    const char *slash = strrchr(path, '/'), *mark = strstr(path, "%p");
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const char *end = dot != NULL && dot != name ? dot : name + strlen(name);
    size_t used = 0;
    for (const char *at = path; used + sizeof "*[0-9]*" < room; at++) {
        if (at == end) {
            out[used++] = '*';
        }
        if (at == mark) {
            used += (size_t)sprintf(out + used, "[0-9]*");
            at++;
            continue;
        }
        if (*at != '\0' && strchr("*?[\\", *at) != NULL) {
            out[used++] = '\\';
        }
        out[used++] = *at;
        if (*at == '\0') {
            return true;
        }
    }
    return false;
}

/* Name the frames of all files of this run. */
static void name_all(const struct order *order)
{
    char pattern[PATH_MAX];
    glob_t found;
    if (compose_pattern(order->trace, pattern, sizeof pattern) &&
        glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            name_frames(order, found.gl_pathv[i]);
        }
        globfree(&found);
    }
}

static bool is_as_before(const struct stat *before, const struct stat *now)
{
    return before->st_dev == now->st_dev && before->st_ino == now->st_ino &&
           before->st_size == now->st_size &&
           memcmp(&before->st_mtim, &now->st_mtim, sizeof now->st_mtim) == 0;
}

/* Report the state of the requested file; `before` is the state before the run. */
static void tell_trace(const struct order *order, const char *name, const struct stat *before)
{
    const char *path = order->trace;
    struct stat facts;
    if (!order->is_record || path == NULL) {
        return;
    }
    if (order->has_stacks) {
        name_all(order);
    }
    bool is_there = stat(path, &facts) == 0;
    if (strstr(path, "%p") != NULL || (is_there && !S_ISREG(facts.st_mode))) {
        return; /* the content of pipes and devices is unknown */
    }
    if (!is_there) {
        flw_complain("%s: nothing was recorded: %s does not exist", name, path);
    } else if (facts.st_size == 0 || is_as_before(before, &facts)) {
        flw_complain("%s: nothing new was recorded in %s", name, path);
    } else {
        flw_complain("%s: %s, %" PRIu64 " bytes; see fallow report %s", name, path,
                     (uint64_t)facts.st_size, path);
    }
}

/* Run the command; a code other than 0 is this program's. */
static int launch_and_tell(const struct order *order, struct flw_launch *launch)
{
    struct stat before = {0};
    if (order->compares) {
        return flw_compare_run(launch, order->patterns.bytes);
    }
    if (order->trace != NULL && stat(order->trace, &before) != 0) {
        before = (struct stat){0};
    }
    int code = flw_launch(launch);
    if (code == 0 && !flw_launch_explain(launch)) {
        tell_trace(order, launch->subcommand, &before);
    }
    return code;
}

static int carry_out(struct order *order, const char *name, char **command)
{
    struct flw_launch launch = {.subcommand = name,
                                .command = command,
                                .library = order->library,
                                .settings = &order->settings,
                                .replaces = order->replaces};
    int code = FLW_EXIT_FAILED;
    if (!order->is_sim || begin_sim(order)) {
        code = launch_and_tell(order, &launch);
    }
    end_sim(order);
    return code != 0 || order->compares ? code : flw_launch_end_as(&launch);
}

static int run(int argc, char **argv, bool is_record)
{
    struct order order = {.is_record = is_record,
                          .mode = is_record ? "trace" : NULL,
                          .trace = is_record ? "fallow.ftrace" : NULL,
                          .patterns = {.bytes = {0x00, 0xFF}},
                          .began_ns = flw_clock_read(CLOCK_REALTIME)};
    const char *name = argv[0];
    if (!flw_settings_inherit(&order.settings)) {
        return FLW_EXIT_USAGE;
    }
    struct flw_options options = {.command = name,
                                  .help = is_record ? record_help : run_help,
                                  .list = is_record ? record_options : run_options,
                                  .ends_at_operand = true};
    int code = flw_options_read(&options, &order, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    bool is_right = check_order(&order, name, argv[optind - 1], argv + optind) &&
                    check_place(&order, name) && put_settings(&order);
    return is_right ? carry_out(&order, name, argv + optind) : FLW_EXIT_USAGE;
}

int flw_command_run(int argc, char **argv)
{
    return run(argc, argv, false);
}

int flw_command_record(int argc, char **argv)
{
    return run(argc, argv, true);
}
