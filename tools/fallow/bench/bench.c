/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command line of `fallow bench`, and the table of its shapes.
 */
#include "bench/bench.h"

#include "base/bits.h"
#include "common/command.h"
#include "common/figures.h"
#include "common/options.h"

#include <getopt.h>

struct shape {
    const char *name;
    flw_bench_shape *run;
    const char *size; /* defaults */
    uint64_t live_count;
    size_t stream_count, thread_count;
    unsigned traits;
    const struct flw_options *command; /* NULL: that of most shapes */
    const flw_sim_config *world;
};

#define EXIT_ABSENT 77 /* kernels: no such device, or no kernels for the device */

#define ONE_SIZE   1u /* --size in bytes */
#define NEEDS_POOL 2u /* --policy fallow */
#define NEEDS_LIVE 4u /* --live at least 1 */

static const struct shape shapes[] = {
    {"pair", flw_bench_pair, "4096", 0, 1, 1, .traits = 0},
    {"replace", flw_bench_replace, "small", 64, 1, 1, .traits = NEEDS_LIVE},
    {"grow", flw_bench_replace, "1024", 10000, 1, 1, .traits = NEEDS_LIVE},
    {"holes", flw_bench_holes, "small", 10000, 1, 1, .traits = 0},
    {"deferred", flw_bench_deferred, "4096", 10000, 3, 1, .traits = ONE_SIZE},
    {"streams", flw_bench_streams, "4096", 0, 4, 1, .traits = ONE_SIZE},
    {"threads", flw_bench_threads, "4096", 64, 1, 2, .traits = NEEDS_LIVE},
    {"handoff", flw_bench_handoff, "4096", 64, 1, 2, .traits = 0},
    {"lease", flw_bench_lease, "4096", 1, 1, 1, .traits = NEEDS_POOL},
    {"pinned", flw_bench_pinned, "4096", 0, 1, 1, .traits = ONE_SIZE | NEEDS_POOL},
    {"staged", flw_bench_pinned, "4096", 0, 1, 1, .traits = ONE_SIZE | NEEDS_POOL},
#if defined(FLW_HAS_KERNELS)
    {"kernels", flw_bench_kernels, "4096", 0, 1, 1, .command = &flw_bench_kernel_command,
     .world = &flw_bench_kernel_world},
#endif
};

#define SHAPES (sizeof shapes / sizeof *shapes)

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
    "            allocated, announced for another stream and freed, with a poll every 64th time\n"
    "  streams   a pair per step, each on the next of --streams, or on a random one (--switch);\n"
    "            --sweep: a table of the cost of a pair on random streams, for each combination of\n"
    "            --streams, --size and --beside\n"
    "  threads   --threads pinned threads, each on its own stream; alternates with\n"
    "            libfallow-null.so\n"
    "  handoff   one thread allocates, another frees (--streams 2: each on its own stream);\n"
    "            --live is the length of the queue between them; --lockstep: by turns, for callgrind\n"
    "  lease     begin and end an arena's lease of twelve regions, of --live layouts in turn, at most\n"
    "            8 (--policy fallow)\n"
    "  pinned    a pair of pinned host memory, freed as idle (--policy fallow)\n"
    "  staged    the same, freed in the order of a stream (--policy fallow)\n"
#if defined(FLW_HAS_KERNELS)
    "  kernels   the kernel modules: bytes, launches, time\n"
    "\n"
    "  fallow bench kernels --help   its options and an example\n"
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
    "  --seed N         of the random numbers (1)\n"
    "  --sweep          streams: --streams, --size, --beside each a list, 50000 pairs a row\n"
    "                   (1,8,64,512; 64K,1M,3M; 0,4G)\n"
    "  --beside BYTES   sweep: live beside the pairs, in blocks of their size, on the streams in turn\n"
    "  --lag N          sweep: the simulated device works on each block, until N pairs later (0: no\n"
    "                   work); the figures then include the time of the simulation\n"
    "  --record FILE    pair: into a trace file, or \"ring\" to keep the newest records; prints also the\n"
    "                   cost of reading the processor's counter\n"
    "  --device sim|N   (sim)                          --json       everything, one line\n"
    "\n"
    "exit status 0: measured; 1: a call failed, the figures do not count, or nothing could be set up;\n"
    "2: the command line is wrong\n"
    "\n"
    "example: fallow bench replace --size mixed --percentiles\n";

/* ---- options */

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
            return flw_complain("--%s '%s' is not a whole number from %llu to %llu%s", name, word,
                                (unsigned long long)low, (unsigned long long)high, other);
        }
        if (list->count == FLW_BENCH_LIST_MAX) {
            return flw_complain("--%s has more than %d values", name, FLW_BENCH_LIST_MAX);
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
    static const char *const names[] = {[FLW_BENCH_SIZE_SMALL] = "small",
                                        [FLW_BENCH_SIZE_MIXED] = "mixed",
                                        [FLW_BENCH_SIZE_LOG] = "log"};
    struct flw_bench_options *options = member;
    options->size_name = text;
    for (options->sizes = FLW_BENCH_SIZE_LOG; options->sizes != FLW_BENCH_SIZE_ONE;
         options->sizes--) {
        if (strcmp(text, names[options->sizes]) == 0) {
            return true;
        }
    }
    bool is_list =
        take_list("size", text, 1, (uint64_t)1 << 40, ", small, mixed or log", &options->size_list);
    options->size_bytes = options->size_list.values[0];
    return is_list;
}

static bool take_policy(void *member, const char *text)
{
    const struct flw_bench_policy **policy = member;
    *policy = flw_bench_policy_find(text);
    return *policy != NULL ||
           flw_complain("bench: no policy '%s': use one of fallow, null, loop", text);
}

#define OPTION(member) offsetof(struct flw_bench_options, member)
#define MOST           (UINT64_MAX >> 8)

/* clang-format off */
static const struct flw_option option_list[] = {
    {.name = "size", .kind = FLW_OPTION_TAKE, .take = take_size},
    {.name = "count", .kind = FLW_OPTION_SCALED, .offset = OPTION(count), .least = 1, .most = MOST},
    {.name = "warm", .kind = FLW_OPTION_SCALED, .offset = OPTION(warm_count), .least = 0, .most = MOST},
    {.name = "live", .kind = FLW_OPTION_SCALED, .offset = OPTION(live_count), .least = 0, .most = (uint64_t)1 << 26},
    {.name = "streams", .kind = FLW_OPTION_TAKE, .take = take_streams},
    {.name = "beside", .kind = FLW_OPTION_TAKE, .take = take_beside},
    {.name = "lag", .kind = FLW_OPTION_SCALED, .offset = OPTION(lag_pairs), .least = 0, .most = (uint64_t)1 << 32},
    {.name = "threads", .kind = FLW_OPTION_SCALED, .offset = OPTION(thread_count), .least = 1, .most = 4096},
    {.name = "seed", .kind = FLW_OPTION_SCALED, .offset = OPTION(seed), .least = 0, .most = MOST},
    {.name = "policy", .kind = FLW_OPTION_TAKE, .offset = OPTION(policy), .take = take_policy},
    {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = OPTION(device)},
    {.name = "part", .kind = FLW_OPTION_TEXT, .offset = OPTION(part)},
    {.name = "sweep", .kind = FLW_OPTION_SET, .offset = OPTION(is_sweep)},
    {.name = "switch", .kind = FLW_OPTION_SET, .offset = OPTION(is_random_switch)},
    {.name = "sized", .kind = FLW_OPTION_SET, .offset = OPTION(is_sized)},
    {.name = "percentiles", .kind = FLW_OPTION_SET, .offset = OPTION(has_percentiles)},
    {.name = "lockstep", .kind = FLW_OPTION_SET, .offset = OPTION(is_lockstep)},
    {.name = "record", .kind = FLW_OPTION_TEXT, .offset = OPTION(record)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = OPTION(is_json)},
    {.name = NULL}};
/* clang-format on */

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "FLW_OPTION_SCALED sets counts of both kinds");

static const struct flw_options command = {.command = "bench", .help = help, .list = option_list};

/* ---- options that exclude each other */

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

/* Return the reason to refuse options that would be ignored in silence, or NULL. */
static const char *find_conflict(const struct flw_bench_options *options, const struct shape *shape)
{
    static const char *const parts[] = {"hole", "larger", "both", NULL};
    bool is_pool = strcmp(options->policy->name, "fallow") == 0;
    bool is_pair = shape->run == flw_bench_pair, is_deferred = shape->run == flw_bench_deferred;
    bool has_mixed_sizes = options->sizes != FLW_BENCH_SIZE_ONE, is_sweep = options->is_sweep;
    const struct {
        bool is_wrong;
        const char *sentence;
    } rows[] = {
        {shape->traits & NEEDS_LIVE && options->live_count == 0, "--live must be at least 1"},
        {options->part != NULL && !flw_is_one_of(options->part, parts),
         "--part is hole, larger or both"},
        {options->is_sized && !is_pair, "--sized is for pair"},
        {options->record != NULL && !(is_pair && is_pool),
         "--record is for pair with --policy fallow"},
        {shape->traits & NEEDS_POOL && !is_pool,
         "lease, pinned and staged are for --policy fallow"},
        {options->has_percentiles && strcmp(shape->name, "replace") != 0,
         "--percentiles is for replace"},
        {options->is_lockstep && shape->run != flw_bench_handoff, "--lockstep is for handoff"},
        {is_deferred && options->stream_count != 3,
         "this shape has three streams: the owner's, one held back, one that is not"},
        {is_deferred && options->live_count > 4 * FLW_GIB / options->size_bytes,
         "--live times --size is more than 4 GiB, and none of it can be used again"},
        {is_deferred && options->live_count > DEFERRED_MAX,
         "--live is at most 128K: their fences would fill the held stream's queue"},
        {has_mixed_sizes && shape->traits & ONE_SIZE, "this shape takes one --size in bytes"},
        {has_mixed_sizes && options->is_sized, "--sized takes one --size in bytes"},
        {is_sweep && (shape->run != flw_bench_streams || options->is_random_switch),
         "--sweep is for streams, without --switch: its streams are random"},
        {!is_sweep && (options->stream_list.count > 1 || options->size_list.count > 1 ||
                       options->beside_list.count > 0 || options->lag_pairs != 0),
         "lists, --beside and --lag are for streams --sweep"},
        {options->lag_pairs != 0 && (options->device >= 0 || !is_pool),
         "--lag is for --policy fallow on the simulated device"},
        {is_sweep && holds_too_many(options), "--beside is more than 64M blocks of --size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].is_wrong) {
            return rows[i].sentence;
        }
    }
    return NULL;
}

/* Set the options that the command line leaves open. */
static void complete(struct flw_bench_options *options)
{
    if (options->count == 0) {
        options->count = options->is_sweep ? 50000 : 1000000;
    }
    if (options->is_sweep && options->stream_list.count == 0) {
        (void)take_streams(options, "1,8,64,512");
    }
    if (options->is_sweep && options->size_list.count == 0 &&
        options->sizes == FLW_BENCH_SIZE_ONE) {
        (void)take_size(options, "64K,1M,3M");
    }
    if (options->is_sweep && options->beside_list.count == 0) {
        (void)take_beside(options, "0,4G");
    }
}

static const char *shape_name(size_t index)
{
    return index < SHAPES ? shapes[index].name : NULL;
}

/* Returns NULL after a complaint that lists the shapes. */
static const struct shape *find_shape(const char *name)
{
    char all[256] = "there are ";
    for (size_t i = 0; i < SHAPES; i++) {
        flw_append(all, sizeof all, "%s%s", i == 0 ? "" : ", ", shapes[i].name);
    }
    if (name[0] == '\0') {
        flw_complain("bench needs a shape: %s; see fallow bench --help", strstr(all, "pair"));
        return NULL;
    }
    size_t index = flw_choose(name, shape_name, "bench has no shape", all);
    return index < SHAPES ? &shapes[index] : NULL;
}

static int parse(int argc, char **argv, struct flw_bench_options *options,
                 const struct shape *shape)
{
    *options = (struct flw_bench_options){.shape = shape->name,
                                          .policy = flw_bench_policy_find("fallow"),
                                          .size_bytes = 4096,
                                          .warm_count = 20000,
                                          .live_count = shape->live_count,
                                          .stream_count = shape->stream_count,
                                          .thread_count = shape->thread_count,
                                          .seed = 1,
                                          .world = shape->world,
                                          .device = -1};
    (void)take_size(options, shape->size);
    options->size_list.count = 0; /* none is given */
    const struct flw_options *own = shape->command != NULL ? shape->command : &command;
    int code = flw_options_read(own, options, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc) {
        return flw_refuse(FLW_EXIT_USAGE, "%s: unknown argument '%s'; see fallow %s --help",
                          own->command, argv[optind], own->command);
    }
    complete(options);
    const char *conflict = find_conflict(options, shape);
    return conflict == NULL ? FLW_OPTIONS_READ
                            : flw_refuse(FLW_EXIT_USAGE, "bench %s: %s", shape->name, conflict);
}

/* ---- command */

static void add_usage(struct flw_bench *bench, const fallow_stats *before)
{
    fallow_stats after = flw_bench_usage(bench);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"alloc_count", after.alloc_count - before->alloc_count},
                {"hit_count", after.hit_count - before->hit_count},
                {"driver_calls", after.driver_call_count - before->driver_call_count},
                {"events_recorded", after.event_count - before->event_count},
                {"grow_operations", after.grow_count},
                {"peak_requested_bytes", after.peak_requested_bytes},
                {"peak_reserved_bytes", after.peak_reserved_bytes},
                {"left_live", after.live_count},
                {"uses_membarrier", after.uses_membarrier}};
    if (after.alloc_count == UINT64_MAX) {
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        flw_bench_add(bench, rows[i].key, (double)rows[i].value);
    }
    bench->failure_count += after.live_count; /* a block that was freed without success */
}

/* Run the shape and print the report. Returns false if a figure is missing or does not count. */
static bool run(struct flw_bench *bench, flw_bench_shape *shape)
{
    fallow_stats before = flw_bench_usage(bench);
    bool is_done = shape(bench);
    if (is_done && bench->rows == NULL) { /* rows have figures of their own */
        add_usage(bench, &before);
    }
    is_done = is_done && (bench->options->record == NULL || flw_bench_stop_recording(bench));
    if (is_done) {
        flw_bench_print(bench);
    }
    return is_done && bench->failure_count == 0;
}

int flw_command_bench(int argc, char **argv)
{
    const char *name = argc < 2 ? "" : argv[1];
    struct flw_bench_options options;
    struct flw_bench bench = {.options = &options};
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(help, stdout);
        return FLW_EXIT_OK;
    }
    const struct shape *shape = find_shape(name);
    if (shape == NULL) {
        return FLW_EXIT_USAGE;
    }
    int code = parse(argc - 1, argv + 1, &options, shape);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    code = FLW_EXIT_FAILED;
    if (flw_bench_open(&bench)) {
        code = run(&bench, shape->run) ? FLW_EXIT_OK : FLW_EXIT_FAILED;
        flw_bench_close(&bench);
    }
    if (bench.message[0] != '\0') {
        flw_complain("bench %s: %s", name, bench.message);
    }
    if (bench.failure_count != 0) {
        flw_complain("bench: %llu operations failed: the figures do not count",
                     (unsigned long long)bench.failure_count);
    }
    return bench.is_absent && shape->command != NULL ? EXIT_ABSENT : code;
}
