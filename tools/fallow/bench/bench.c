/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow bench`.
 */
#include "bench/bench.h"

#include "bench/kernels.h"
#include "common/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: fallow bench SHAPE [options]\n"
    "\n"
    "Nanoseconds per operation. Under callgrind, with two counts, instructions per operation:\n"
    "(Ir(count 2) - Ir(count 1)) / (count 2 - count 1); tools/measure does that.\n"
    "\n"
    "shapes\n"
    "  pair      allocate and free one block of --size\n"
    "  replace   --live blocks of --size, replace a random one\n"
    "  grow      the same with many small ones (--live 100 to 1000000; --pair: a pair beside them)\n"
    "  holes     --live free holes of 4 to 64 KiB between live blocks: a pair that fits one, and a\n"
    "            pair larger than each (--part hole|larger for one of the two)\n"
    "  deferred  --live freed blocks that a stream still uses, as announced: beside them a block is\n"
    "            allocated, announced for another stream and freed; every 64th time a poll\n"
    "  streams   a pair per step, each on the next of --streams, or on a random one (--switch)\n"
    "  threads   --threads pinned threads, each on its own stream, beside libfallow-null.so in turn\n"
    "  handoff   one thread allocates, another frees (--streams 2: each on its own stream);\n"
    "            --live is the length of the queue between them; --lockstep: by turns, for callgrind\n"
    "  lease     begin and end an arena's lease of twelve regions (--policy fallow)\n"
    "  pinned    a pair of pinned host memory, freed as idle (--policy fallow)\n"
    "  staged    the same, freed in the order of a stream (--policy fallow)\n"
#if defined(FLW_HAS_KERNELS)
    "  kernels   the kernel modules: bytes, launches, time; options of its own\n"
#endif
    "\n"
    "options\n"
    "  --size BYTES|small|mixed|log   512 B..32 KiB; 19 sizes 512 B..64 MiB; log-uniform (4096)\n"
    "  --count N        timed operations (1000000)     --warm N     untimed before them (20000)\n"
    "  --live N         live or deferred blocks, holes, queue (64; grow, holes, deferred: 10000)\n"
    "  --streams N      (1; streams: 4)                --threads N  (2)\n"
    "  --policy NAME    fallow, null (an empty shared library), loop (the loop alone)\n"
    "  --sized          pair, grow: free_sized         --percentiles  replace: latency of each\n"
    "  --memory-first   the pool's other economy       --seed N     (1)\n"
    "  --record FILE    pair: into a trace file, or \"ring\", which keeps the last; and what reading\n"
    "                   the processor's counter alone costs\n"
    "  --device sim|N   (sim)                          --json       everything, one line\n"
    "\n"
    "exit status 0: measured; 1: a call failed, the figures do not count, or nothing could be set up;\n"
    "2: the command line is wrong\n"
    "\n"
    "example: fallow bench replace --size mixed --percentiles\n";

struct shape {
    const char *name;
    flw_bench_shape run;
    uint64_t live_count; /* default */
    size_t stream_count, thread_count;
};

static const struct shape shapes[] = {
    {"pair", flw_bench_pair, 0, 1, 1},
    {"replace", flw_bench_replace, 64, 1, 1},
    {"grow", flw_bench_grow, 10000, 1, 1},
    {"holes", flw_bench_holes, 10000, 1, 1},
    {"deferred", flw_bench_deferred, 10000, 3, 1},
    {"streams", flw_bench_streams, 0, 4, 1},
    {"threads", flw_bench_threads, 64, 1, 2},
    {"handoff", flw_bench_handoff, 64, 1, 2},
    {"lease", flw_bench_lease, 0, 1, 1},
    {"pinned", flw_bench_pinned, 0, 1, 1},
    {"staged", flw_bench_staged, 0, 1, 1},
};

/* Digits with an optional K, M or G (powers of 1,024). */
static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *text == '-' || errno != 0) {
        return false;
    }
    static const char suffixes[] = "KMG";
    const char *suffix = *end == '\0' ? NULL : strchr(suffixes, *end);
    if (suffix != NULL) {
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        if (value > ULLONG_MAX >> shift) {
            return false;
        }
        value <<= shift;
        end++;
    }
    *out = value;
    return *end == '\0' && value <= max;
}

static bool parse_size(struct flw_bench_options *options, const char *text)
{
    static const struct {
        const char *name;
        enum flw_bench_sizes sizes;
    } names[] = {{"small", FLW_BENCH_SIZE_SMALL},
                 {"mixed", FLW_BENCH_SIZE_MIXED},
                 {"log", FLW_BENCH_SIZE_LOG}};
    uint64_t value = 0;
    options->size_name = text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i].name) == 0) {
            options->sizes = names[i].sizes;
            return true;
        }
    }
    options->sizes = FLW_BENCH_SIZE_ONE;
    bool is_number = parse_number(text, (uint64_t)1 << 40, &value);
    options->size_bytes = value;
    return is_number && value != 0;
}

static bool parse_policy(struct flw_bench_options *options, const char *text)
{
    options->policy = flw_bench_policy_find(text);
    if (options->policy == NULL) {
        fprintf(stderr, "fallow bench: no policy '%s' in this build: use one of %s\n", text,
                flw_bench_policy_names());
    }
    return options->policy != NULL;
}

static bool parse_device(struct flw_bench_options *options, const char *text)
{
    uint64_t value = 0;
    if (strcmp(text, "sim") == 0) {
        options->device = -1;
        return true;
    }
    bool is_number = parse_number(text, 1023, &value);
    options->device = (int)value;
    return is_number;
}

static bool parse_part(struct flw_bench_options *options, const char *text)
{
    options->part = strcmp(text, "hole") == 0     ? FLW_BENCH_HOLE
                    : strcmp(text, "larger") == 0 ? FLW_BENCH_LARGER
                                                  : FLW_BENCH_BOTH;
    return options->part != FLW_BENCH_BOTH || strcmp(text, "both") == 0;
}

static const struct option long_options[] = {
    {"size", required_argument, NULL, 's'},    {"count", required_argument, NULL, 'c'},
    {"warm", required_argument, NULL, 'w'},    {"live", required_argument, NULL, 'l'},
    {"streams", required_argument, NULL, 'S'}, {"threads", required_argument, NULL, 't'},
    {"policy", required_argument, NULL, 'p'},  {"device", required_argument, NULL, 'd'},
    {"seed", required_argument, NULL, 'e'},    {"part", required_argument, NULL, 'P'},
    {"pair", no_argument, NULL, 'a'},          {"switch", no_argument, NULL, 'r'},
    {"sized", no_argument, NULL, 'z'},         {"percentiles", no_argument, NULL, 'q'},
    {"lockstep", no_argument, NULL, 'k'},      {"memory-first", no_argument, NULL, 'm'},
    {"record", required_argument, NULL, 'o'},  {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

static uint64_t number_min(int option)
{
    return strchr("cSt", option) != NULL;
}

static uint64_t number_max(int option)
{
    return option == 'l'                    ? (uint64_t)1 << 26
           : option == 'S' || option == 't' ? 4096
                                            : UINT64_MAX >> 8;
}

static bool apply_number(struct flw_bench_options *options, int option, const char *text)
{
    uint64_t value = 0;
    if (!parse_number(text, number_max(option), &value) || value < number_min(option)) {
        return false;
    }
    switch (option) {
    case 'c':
        options->count = value;
        break;
    case 'w':
        options->warm_count = value;
        break;
    case 'l':
        options->live_count = value;
        break;
    case 'S':
        options->stream_count = (size_t)value;
        break;
    case 't':
        options->thread_count = (size_t)value;
        break;
    default:
        options->seed = value;
        break;
    }
    return true;
}

static bool apply(struct flw_bench_options *options, int option, const char *text)
{
    switch (option) {
    case 's':
        return parse_size(options, text);
    case 'p':
        return parse_policy(options, text);
    case 'd':
        return parse_device(options, text);
    case 'P':
        return parse_part(options, text);
    case 'a':
        return options->is_pair = true;
    case 'r':
        return options->is_random_switch = true;
    case 'z':
        return options->is_sized = true;
    case 'q':
        return options->has_percentiles = true;
    case 'm':
        return options->is_memory_first = true;
    case 'k':
        return options->is_lockstep = true;
    case 'o':
        options->record = text;
        return true;
    case 'j':
        return options->is_json = true;
    default:
        return apply_number(options, option, text);
    }
}

/* What a value could have been. */
static void complain_value(int option, const char *name, const char *text)
{
    char range[64];
    snprintf(range, sizeof range, "a whole number from %" PRIu64 " to %" PRIu64, number_min(option),
             number_max(option));
    fprintf(stderr, "fallow bench: --%s '%s' is no value for it: give %s\n", name, text,
            option == 's'   ? "bytes from 1 to 1024G, small, mixed or log"
            : option == 'd' ? "sim or the number of a GPU"
            : option == 'P' ? "hole, larger or both"
                            : range);
}

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    fprintf(stderr,
            "fallow bench: no shape '%s': use pair, replace, grow, holes, deferred, streams, "
            "threads, handoff, lease, pinned or staged\n",
            name);
    return NULL;
}

#define DEFERRED_BYTES_MAX ((uint64_t)4 << 30)

/* Combinations that would be ignored in silence are refused. NULL: fine. */
static const char *find_conflict(const struct flw_bench_options *options)
{
    const char *shape = options->shape;
    bool is_replacing = strcmp(shape, "replace") == 0 || strcmp(shape, "grow") == 0 ||
                        strcmp(shape, "threads") == 0;
    bool has_mixed_sizes = options->sizes != FLW_BENCH_SIZE_ONE;
    bool is_deferred = strcmp(shape, "deferred") == 0;
    if (is_replacing && options->live_count == 0) {
        return "--live must be at least 1";
    }
    if (options->is_sized && strcmp(shape, "pair") != 0 &&
        !(strcmp(shape, "grow") == 0 && options->is_pair)) {
        return "--sized is for pair and grow --pair";
    }
    if (options->record != NULL &&
        (strcmp(shape, "pair") != 0 || strcmp(options->policy->name, "fallow") != 0)) {
        return "--record is for pair with --policy fallow";
    }
    bool is_pinned = strcmp(shape, "pinned") == 0 || strcmp(shape, "staged") == 0;
    if ((is_pinned || strcmp(shape, "lease") == 0) &&
        strcmp(options->policy->name, "fallow") != 0) {
        return "lease, pinned and staged are for --policy fallow";
    }
    if (options->has_percentiles && (strcmp(shape, "replace") != 0 || options->is_pair)) {
        return "--percentiles is for replace";
    }
    if (options->is_lockstep && strcmp(shape, "handoff") != 0) {
        return "--lockstep is for handoff";
    }
    if (is_deferred && options->stream_count != 3) {
        return "this shape has three streams: the owner's, one held back, one that is not";
    }
    if (is_deferred && options->live_count > DEFERRED_BYTES_MAX / options->size_bytes) {
        return "--live times --size is more than 4 GiB, and none of it can be used again";
    }
    if (has_mixed_sizes && (is_pinned || is_deferred || strcmp(shape, "streams") == 0)) {
        return "this shape takes one --size in bytes";
    }
    if (has_mixed_sizes && (options->is_pair || options->is_sized)) {
        return "--pair and --sized take one --size in bytes";
    }
    return NULL;
}

/* 0: run; 1: help was shown; 2: a mistake was named. */
static int parse(int argc, char **argv, struct flw_bench_options *options,
                 const struct shape **out_shape)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 1;
    }
    const struct shape *shape = find_shape(argv[1]);
    if (shape == NULL) {
        return 2;
    }
    *options = (struct flw_bench_options){.shape = shape->name,
                                          .size_bytes = 4096,
                                          .size_name = "4096",
                                          .count = 1000000,
                                          .warm_count = 20000,
                                          .live_count = shape->live_count,
                                          .stream_count = shape->stream_count,
                                          .thread_count = shape->thread_count,
                                          .seed = 1,
                                          .device = -1};
    bool is_sized_by_shape =
        strcmp(shape->name, "replace") == 0 || strcmp(shape->name, "holes") == 0;
    if (is_sized_by_shape) { /* one size would hardly be a replacement; holes have their own mix */
        options->sizes = FLW_BENCH_SIZE_SMALL;
        options->size_name = "small";
    } else if (strcmp(shape->name, "grow") == 0) {
        options->size_bytes = 1024;
        options->size_name = "1024";
    }
    optind = 1;
    int at = 0;
    for (int option; (option = getopt_long(argc - 1, argv + 1, ":h", long_options, &at)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 1;
        }
        if (option == '?' || option == ':') {
            flw_complain_option("bench", argv + 1, option);
            return 2;
        }
        if (!apply(options, option, optarg)) {
            if (option != 'p') { /* it has said so itself */
                complain_value(option, long_options[at].name, optarg);
            }
            return 2;
        }
    }
    if (optind < argc - 1) {
        fprintf(stderr, "fallow bench: what is '%s'? see --help\n", argv[1 + optind]);
        return 2;
    }
    if (options->policy == NULL && !parse_policy(options, "fallow")) {
        return 2;
    }
    const char *conflict = find_conflict(options);
    if (conflict != NULL) {
        fprintf(stderr, "fallow bench %s: %s\n", shape->name, conflict);
        return 2;
    }
    *out_shape = shape;
    return 0;
}

static void add_usage(const struct flw_bench_usage *before, const struct flw_bench_usage *after,
                      struct flw_bench_report *report)
{
    if (after->alloc_count == UINT64_MAX) {
        return;
    }
    flw_bench_report_add(report, "alloc_count", (double)(after->alloc_count - before->alloc_count));
    flw_bench_report_add(report, "hit_count", (double)(after->hit_count - before->hit_count));
    flw_bench_report_add(report, "driver_calls",
                         (double)(after->driver_call_count - before->driver_call_count));
    flw_bench_report_add(report, "events_recorded",
                         (double)(after->event_count - before->event_count));
    flw_bench_report_add(report, "grow_operations", (double)after->grow_count);
    flw_bench_report_add(report, "peak_requested_bytes", (double)after->peak_requested_bytes);
    flw_bench_report_add(report, "peak_reserved_bytes", (double)after->peak_reserved_bytes);
    flw_bench_report_add(report, "left_live", (double)after->live_count);
    flw_bench_report_add(report, "uses_membarrier", after->uses_membarrier);
    report->failure_count += after->live_count; /* a block that was freed without success */
}

int flw_command_bench(int argc, char **argv)
{
    char message[FLW_BENCH_MESSAGE_BYTES] = "";
    struct flw_bench_options options;
    struct flw_bench_report report = {0};
    struct flw_bench_usage before, after;
    struct flw_bench_bed bed;
    const struct shape *shape = NULL;
#if defined(FLW_HAS_KERNELS)
    if (argc > 1 && strcmp(argv[1], "kernels") == 0) {
        return flw_command_bench_kernels(argc - 1, argv + 1);
    }
#endif
    int parsed = parse(argc, argv, &options, &shape);
    if (parsed != 0) {
        return parsed == 1 ? 0 : 2;
    }
    if (!flw_bench_bed_open(&bed, &options, message)) {
        fprintf(stderr, "fallow bench: %s\n", message);
        return 1;
    }
    bed.policy->get_usage(bed.pool, &before);
    bool is_done = shape->run(&options, &bed, &report, message);
    if (is_done) {
        bed.policy->get_usage(bed.pool, &after);
        is_done = options.record == NULL || bed.policy->stop_recording(message);
    }
    if (is_done) {
        add_usage(&before, &after, &report);
        flw_bench_report_print(&report, &options, &bed);
    }
    if (message[0] != '\0') {
        fprintf(stderr, "fallow bench: %s\n", message);
    }
    flw_bench_bed_close(&bed);
    if (report.failure_count != 0) {
        fprintf(stderr, "fallow bench: %llu operations failed: the figures do not count\n",
                (unsigned long long)report.failure_count);
    }
    return is_done && report.failure_count == 0 ? 0 : 1;
}
