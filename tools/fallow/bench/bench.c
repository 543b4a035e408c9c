/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow bench`.
 */
#include "bench/bench.h"

#include "base/bits.h"
#include "bench/kernels.h"
#include "common/command.h"
#include "common/options.h"

#include <getopt.h>
#include <stdio.h>
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
    "  grow      the same with many small ones (--live 100 to 1000000)\n"
    "  holes     --live free holes of 4 to 64 KiB between live blocks: a pair that fits one, and a\n"
    "            pair larger than each (--part hole|larger for one of the two)\n"
    "  deferred  --live freed blocks that a stream still uses, as announced: beside them a block is\n"
    "            allocated, announced for another stream and freed; every 64th time a poll\n"
    "  streams   a pair per step, each on the next of --streams, or on a random one (--switch);\n"
    "            --sweep: a table of what a pair costs on random ones, for each of the lists'\n"
    "            streams, sizes and bytes that are live beside it\n"
    "  threads   --threads pinned threads, each on its own stream, beside libfallow-null.so in turn\n"
    "  handoff   one thread allocates, another frees (--streams 2: each on its own stream);\n"
    "            --live is the length of the queue between them; --lockstep: by turns, for callgrind\n"
    "  lease     begin and end an arena's lease of twelve regions, of --live layouts in turn, at most\n"
    "            8 (--policy fallow)\n"
    "  pinned    a pair of pinned host memory, freed as idle (--policy fallow)\n"
    "  staged    the same, freed in the order of a stream (--policy fallow)\n"
#if defined(FLW_HAS_KERNELS)
    "  kernels   the kernel modules: bytes, launches, time\n"
    "\n  fallow bench kernels --help   its options and an example\n"
#endif
    "\n"
    "options\n"
    "  --size BYTES|small|mixed|log   512 B..32 KiB; 19 sizes 512 B..64 MiB; log-uniform (4096)\n"
    "  --count N        timed operations (1000000)     --warm N     untimed before them (20000)\n"
    "  --live N         live or deferred blocks, holes, queue, layouts (64; grow, holes, deferred:\n"
    "                   10000; deferred: at most 128K; lease: 1)\n"
    "  --streams N      (1; streams: 4)                --threads N  (2)\n"
    "  --policy NAME    fallow, null (an empty shared library), loop (the loop alone)\n"
    "  --sized          pair: free_sized               --percentiles  replace: latency of each\n"
    "  --seed N         of what is drawn (1)\n"
    "  --sweep          streams: --streams, --size, --beside each a list, 50000 pairs a row\n"
    "                   (1,8,64,512; 64K,1M,3M; 0,4G)\n"
    "  --beside BYTES   sweep: live beside the pairs, in blocks of their size, on the streams in turn\n"
    "  --lag N          sweep: each block is given work of the simulated device, which is done N\n"
    "                   pairs later (0: none); its own time is in the figures then\n"
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
    flw_bench_shape *run;
    uint64_t live_count; /* default */
    size_t stream_count, thread_count;
};

static const struct shape shapes[] = {
    {"pair", flw_bench_pair, 0, 1, 1},
    {"replace", flw_bench_replace, 64, 1, 1},
    {"grow", flw_bench_replace, 10000, 1, 1},
    {"holes", flw_bench_holes, 10000, 1, 1},
    {"deferred", flw_bench_deferred, 10000, 3, 1},
    {"streams", flw_bench_streams, 0, 4, 1},
    {"threads", flw_bench_threads, 64, 1, 2},
    {"handoff", flw_bench_handoff, 64, 1, 2},
    {"lease", flw_bench_lease, 1, 1, 1},
    {"pinned", flw_bench_pinned, 0, 1, 1},
    {"staged", flw_bench_staged, 0, 1, 1},
};

/* "8,64", each with a suffix or without. */
static bool take_list(const char *name, const char *text, uint64_t low, uint64_t high,
                      const char *other, struct flw_bench_list *list)
{
    list->count = 0;
    for (const char *at = text;; at++) {
        char word[32];
        size_t length = strcspn(at, ",");
        uint64_t value = 0;
        snprintf(word, sizeof word, "%.*s", (int)flw_min(length, sizeof word), at);
        if (!flw_parse_bytes(word, &value) || value < low || value > high) {
            flw_complain("--%s '%s' is not a whole number from %llu to %llu%s", name, word,
                         (unsigned long long)low, (unsigned long long)high, other);
            return false;
        }
        if (list->count == FLW_BENCH_LIST_MAX) {
            flw_complain("--%s has more than %d values", name, FLW_BENCH_LIST_MAX);
            return false;
        }
        list->values[list->count++] = value;
        at += length;
        if (*at == '\0') {
            return true;
        }
    }
}

static bool take_streams(void *member, const char *text)
{
    struct flw_bench_options *options = member;
    if (!take_list("streams", text, 1, 4096, "", &options->stream_list)) {
        return false;
    }
    options->stream_count = 0;
    for (size_t i = 0; i < options->stream_list.count; i++) {
        options->stream_count = flw_max(options->stream_count, options->stream_list.values[i]);
    }
    return true;
}

static bool take_beside(void *member, const char *text)
{
    struct flw_bench_options *options = member;
    return take_list("beside", text, 0, (uint64_t)1 << 50, "", &options->beside_list);
}

static bool take_size(void *member, const char *text)
{
    static const struct {
        const char *name;
        enum flw_bench_sizes sizes;
    } names[] = {{"small", FLW_BENCH_SIZE_SMALL},
                 {"mixed", FLW_BENCH_SIZE_MIXED},
                 {"log", FLW_BENCH_SIZE_LOG}};
    struct flw_bench_options *options = member;
    options->size_name = text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i].name) == 0) {
            options->sizes = names[i].sizes;
            return true;
        }
    }
    options->sizes = FLW_BENCH_SIZE_ONE;
    if (!take_list("size", text, 1, (uint64_t)1 << 40, ", small, mixed or log",
                   &options->size_list)) {
        return false;
    }
    options->size_bytes = options->size_list.values[0];
    return true;
}

static bool take_policy(void *member, const char *text)
{
    const struct flw_bench_policy **policy = member;
    *policy = flw_bench_policy_find(text);
    if (*policy == NULL) {
        flw_complain("bench: no policy '%s' in this build: use one of %s", text,
                     flw_bench_policy_names());
    }
    return *policy != NULL;
}

static bool take_part(void *member, const char *text)
{
    enum flw_bench_part *part = member;
    *part = strcmp(text, "hole") == 0     ? FLW_BENCH_HOLE
            : strcmp(text, "larger") == 0 ? FLW_BENCH_LARGER
                                          : FLW_BENCH_BOTH;
    if (*part == FLW_BENCH_BOTH && strcmp(text, "both") != 0) {
        flw_complain("--part '%s' is none: give hole, larger or both", text);
        return false;
    }
    return true;
}

#define OPTION(member) offsetof(struct flw_bench_options, member)
#define NUMBER(word, member, low, high)                                                  \
    {                                                                                    \
        .name = word, .kind = FLW_OPTION_SCALED, .offset = OPTION(member), .least = low, \
        .most = high                                                                     \
    }

static const struct flw_option option_list[] = {
    {.name = "size", .kind = FLW_OPTION_TAKE, .offset = 0, .take = take_size},
    NUMBER("count", count, 1, UINT64_MAX >> 8),
    NUMBER("warm", warm_count, 0, UINT64_MAX >> 8),
    NUMBER("live", live_count, 0, (uint64_t)1 << 26),
    {.name = "streams", .kind = FLW_OPTION_TAKE, .offset = 0, .take = take_streams},
    {.name = "sweep", .kind = FLW_OPTION_SET, .offset = OPTION(is_sweep)},
    {.name = "beside", .kind = FLW_OPTION_TAKE, .offset = 0, .take = take_beside},
    NUMBER("lag", lag_pairs, 0, (uint64_t)1 << 32),
    NUMBER("threads", thread_count, 1, 4096),
    NUMBER("seed", seed, 0, UINT64_MAX >> 8),
    {.name = "policy", .kind = FLW_OPTION_TAKE, .offset = OPTION(policy), .take = take_policy},
    {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = OPTION(device)},
    {.name = "part", .kind = FLW_OPTION_TAKE, .offset = OPTION(part), .take = take_part},
    {.name = "switch", .kind = FLW_OPTION_SET, .offset = OPTION(is_random_switch)},
    {.name = "sized", .kind = FLW_OPTION_SET, .offset = OPTION(is_sized)},
    {.name = "percentiles", .kind = FLW_OPTION_SET, .offset = OPTION(has_percentiles)},
    {.name = "lockstep", .kind = FLW_OPTION_SET, .offset = OPTION(is_lockstep)},
    {.name = "record", .kind = FLW_OPTION_TEXT, .offset = OPTION(record)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = OPTION(is_json)},
    {.name = NULL}};
#undef NUMBER
#undef OPTION

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "FLW_OPTION_SCALED sets counts of both kinds");

/* Of a name that is none, "" for none: the shapes there are. */
static void complain_of_shape(const char *name)
{
    struct flw_guess guess = {.word = name, .length = strlen(name)};
    char all[256] = "", hint[FLW_GUESS_BYTES];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ", shapes[i].name);
        flw_guess_offer(&guess, shapes[i].name);
    }
#if defined(FLW_HAS_KERNELS)
    strncat(all, ", kernels", sizeof all - strlen(all) - 1);
    flw_guess_offer(&guess, "kernels");
#endif
    if (name[0] == '\0') {
        flw_complain("bench needs a shape: %s; see fallow bench --help", all);
    } else {
        flw_complain("bench has no shape '%s'%sthere are %s", name, flw_guess_say(&guess, "", hint),
                     all);
    }
}

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    complain_of_shape(name);
    return NULL;
}

#define DEFERRED_BYTES_MAX ((uint64_t)4 << 30)
/* One fence behind 256 blocks, at most: half of a stream's queue of 1,024 entries. */
#define DEFERRED_MAX ((uint64_t)1 << 17)
#define BESIDE_MAX   ((uint64_t)1 << 26) /* blocks */

static bool holds_too_many(const struct flw_bench_options *options)
{
    for (size_t i = 0; i < options->beside_list.count; i++) {
        for (size_t j = 0; j < options->size_list.count; j++) {
            if (options->beside_list.values[i] / options->size_list.values[j] > BESIDE_MAX) {
                return true;
            }
        }
    }
    return false;
}

/* Of a sweep, and of what only a sweep has. NULL: fine. */
static const char *find_sweep_conflict(const struct flw_bench_options *options)
{
    if (!options->is_sweep) {
        return options->stream_list.count > 1 || options->size_list.count > 1 ||
                       options->beside_list.count > 0 || options->lag_pairs != 0
                   ? "lists, --beside and --lag are for streams --sweep"
                   : NULL;
    }
    if (strcmp(options->shape, "streams") != 0 || options->is_random_switch) {
        return "--sweep is for streams, without --switch: its streams are random";
    }
    if (options->lag_pairs != 0 &&
        (options->device >= 0 || strcmp(options->policy->name, "fallow") != 0)) {
        return "--lag is for --policy fallow on the simulated device";
    }
    return holds_too_many(options) ? "--beside is more than 64M blocks of --size" : NULL;
}

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
    if (options->is_sized && strcmp(shape, "pair") != 0) {
        return "--sized is for pair";
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
    if (options->has_percentiles && strcmp(shape, "replace") != 0) {
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
    if (is_deferred && options->live_count > DEFERRED_MAX) {
        return "--live is at most 128K: their fences would fill the held stream's queue";
    }
    if (has_mixed_sizes && (is_pinned || is_deferred || strcmp(shape, "streams") == 0)) {
        return "this shape takes one --size in bytes";
    }
    if (has_mixed_sizes && options->is_sized) {
        return "--sized takes one --size in bytes";
    }
    return find_sweep_conflict(options);
}

/* What the command line leaves open. */
static void complete(struct flw_bench_options *options)
{
    static const struct flw_bench_list streams = {{1, 8, 64, 512}, 4},
                                       sizes = {{64 * FLW_KIB, FLW_MIB, 3 * FLW_MIB}, 3},
                                       besides = {{0, 4 * FLW_GIB}, 2};
    if (options->count == 0) {
        options->count = options->is_sweep ? 50000 : 1000000;
    }
    if (!options->is_sweep) {
        return;
    }
    if (options->stream_list.count == 0) {
        options->stream_list = streams;
        options->stream_count = 512;
    }
    if (options->size_list.count == 0 && options->sizes == FLW_BENCH_SIZE_ONE) {
        options->size_list = sizes;
        options->size_name = "64K,1M,3M";
    }
    if (options->beside_list.count == 0) {
        options->beside_list = besides;
    }
}

static int parse(int argc, char **argv, struct flw_bench_options *options,
                 const struct shape **out_shape)
{
    const char *name = argc < 2 ? "" : argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(help, stdout);
        return FLW_EXIT_OK;
    }
    const struct shape *shape = find_shape(name);
    if (shape == NULL) {
        return FLW_EXIT_USAGE;
    }
    *options = (struct flw_bench_options){.shape = shape->name,
                                          .size_bytes = 4096,
                                          .size_name = "4096",
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
    options->policy = flw_bench_policy_find("fallow");
    int code = flw_options_read(
        &(struct flw_options){.command = "bench", .help = help, .list = option_list}, options,
        argc - 1, argv + 1);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc - 1) {
        flw_complain("bench: what is '%s'? see fallow bench --help", argv[1 + optind]);
        return FLW_EXIT_USAGE;
    }
    complete(options);
    const char *conflict = find_conflict(options);
    if (conflict != NULL) {
        flw_complain("bench %s: %s", shape->name, conflict);
        return FLW_EXIT_USAGE;
    }
    *out_shape = shape;
    return FLW_OPTIONS_READ;
}

static void add_usage(const fallow_stats *before, const fallow_stats *after,
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
    fallow_stats before, after;
    struct flw_bench_bed bed;
    const struct shape *shape = NULL;
#if defined(FLW_HAS_KERNELS)
    if (argc > 1 && strcmp(argv[1], "kernels") == 0) {
        return flw_command_bench_kernels(argc - 1, argv + 1);
    }
#endif
    int code = parse(argc, argv, &options, &shape);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (!flw_bench_bed_open(&bed, &options, message)) {
        flw_complain("bench: %s", message);
        return FLW_EXIT_FAILED;
    }
    bed.policy->get_usage(bed.pool, &before);
    bool is_done = shape->run(&options, &bed, &report, message);
    if (is_done) {
        bed.policy->get_usage(bed.pool, &after);
        is_done = options.record == NULL || bed.policy->stop_recording(message);
    }
    if (is_done) {
        if (!options.is_sweep) { /* its rows have pools of their own */
            add_usage(&before, &after, &report);
        }
        flw_bench_report_print(&report, &options, &bed);
    }
    if (message[0] != '\0') {
        flw_complain("bench: %s", message);
    }
    flw_bench_bed_close(&bed);
    flw_host_free(report.rows);
    if (report.failure_count != 0) {
        flw_complain("bench: %llu operations failed: the figures do not count",
                     (unsigned long long)report.failure_count);
    }
    return is_done && report.failure_count == 0 ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}
