/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow layout`: a ready layout as a table, a picture of regions over phases, and JSON.
 * Does not: place regions (the library) or use a device.
 */
#include <getopt.h>
#include <stdio.h>

#include "base/bits.h"
#include "common/command.h"
#include "common/options.h"
#include "fallow/layouts.h"
#include "trace/io/jsonwriter.h"

#define PICTURE_ROWS    16
#define PICTURE_COLUMNS 64

static const char help_begin[] =
    "usage: fallow layout PATH --model NAME [OPTIONS]\n"
    "\n"
    "Show the workspace of a step: its regions, their offsets, shared bytes, the total size against the\n"
    "smallest possible one, and the cost of filling it with zeros.\n"
    "\n"
    "paths\n";

static const char help_end[] =
    "\n"
    "  --model NAME          the model\n"
    "  --batch N             requests (1)               --tokens N   in the step (batch)\n"
    "  --context N           longest, tokens (8192)     --page N     tokens of a cache page (64)\n"
    "  --chunk N             tokens of an attention chunk, or of a context chunk (65536)\n"
    "  --draft N             tokens of speculative decoding\n"
    "  --splits N            of a decode (32)           --sms N      multiprocessors (132)\n"
    "  --tp N  --ep N        ranks that share the heads, the experts (1)\n"
    "  --block N             rows of a block in the experts' matrix product (128)\n"
    "  --pad-values          latent attention: values as wide as keys\n"
    "  --overlap             latent attention: gather a chunk while the previous one is processed\n"
    "  --quantise            activations of experts in fp8\n"
    "  --in-place            the activation takes the gate's place\n"
    "  --bandwidth BYTES     a second, for the cost of zeros (4.8T, an H200's by its data sheet)\n"
    "  --json                everything, one object\n"
    "\n"
    "exit status 0: shown; 1: no such layout; 2: the command line is wrong\n"
    "\n"
    "example: fallow layout moe-triton --model qwen3-30b-a3b --tokens 8192\n";

struct settings {
    const fallow_path *path;
    const fallow_model *model;
    fallow_step step;
    uint64_t bandwidth; /* bytes a second */
    bool is_json;
};

static void print_help(void)
{
    fputs(help_begin, stdout);
    for (size_t i = 0; fallow_path_at(i) != NULL; i++) {
        printf("  %-16s %s\n", fallow_path_at(i)->name, fallow_path_at(i)->summary);
    }
    fputs("\nmodels:", stdout);
    for (size_t i = 0; fallow_model_preset(i) != NULL; i++) {
        printf(" %s", fallow_model_preset(i)->name);
    }
    printf("\n%s", help_end);
}

/* ---- command line */

static const char *model_name(size_t index)
{
    const fallow_model *model = fallow_model_preset(index);
    return model == NULL ? NULL : model->name;
}

static const char *path_name(size_t index)
{
    const fallow_path *path = fallow_path_at(index);
    return path == NULL ? NULL : path->name;
}

static bool take_model(void *member, const char *name)
{
    size_t index =
        flw_choose(name, model_name, "there is no model", "fallow layout --help lists them");
    *(const fallow_model **)member = index == SIZE_MAX ? NULL : fallow_model_preset(index);
    return index != SIZE_MAX;
}

#define OPTION(...)          FLW_OPTION(struct settings, __VA_ARGS__)
#define NUMBER(word, member) OPTION(word, COUNT, step.member), .least = 1, .most = UINT64_C(1) << 40

static const struct flw_option option_list[] = {{OPTION("model", TAKE, model), .take = take_model},
                                                {OPTION("bandwidth", BYTES, bandwidth)},
                                                {OPTION("pad-values", SET, step.pads_values)},
                                                {OPTION("overlap", SET, step.overlaps)},
                                                {OPTION("quantise", SET, step.quantises)},
                                                {OPTION("in-place", SET, step.activates_in_place)},
                                                {OPTION("json", SET, is_json)},
                                                {NUMBER("batch", batch)},
                                                {NUMBER("tokens", tokens)},
                                                {NUMBER("context", context)},
                                                {NUMBER("page", page_size)},
                                                {NUMBER("chunk", chunk)},
                                                {NUMBER("draft", draft_tokens)},
                                                {NUMBER("splits", splits)},
                                                {NUMBER("sms", sm_count)},
                                                {NUMBER("tp", tensor_ranks)},
                                                {NUMBER("ep", expert_ranks)},
                                                {NUMBER("block", block_rows)},
                                                {.name = NULL}};

_Static_assert(sizeof(bool) == sizeof((fallow_step){0}.pads_values), "FLW_OPTION_SET sets them");

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct flw_options command = {
        .command = "layout", .print_help = print_help, .list = option_list};
    int code = flw_options_read(&command, settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind + 1 != argc) {
        return flw_refuse(FLW_EXIT_USAGE, "layout takes one path; see fallow layout --help");
    }
    size_t index =
        flw_choose(argv[optind], path_name, "there is no path", "fallow layout --help lists them");
    if (index == SIZE_MAX) {
        return FLW_EXIT_USAGE;
    }
    settings->path = fallow_path_at(index);
    if (settings->model == NULL) {
        return flw_refuse(FLW_EXIT_USAGE,
                          "layout needs --model NAME; fallow layout --help lists the models");
    }
    return FLW_OPTIONS_READ;
}

/* ---- output */

struct shown {
    fallow_region of;
    size_t offset;
    const char *contents; /* at first */
    char letter;          /* in the picture; ' ': persistent, so not in it */
};

/* Fill `out` with the region of that index. Returns false after the last one. */
static bool show_region(const fallow_layout *layout, size_t index, struct shown *out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char *const contents[] = {"dirty",        "dirty prefix", "once",
                                           "leading zero", "counter",      "zero",
                                           "sentinel",     "valid tail",   "neutral tail"};
    size_t scratch = 0;
    for (size_t i = 0; i <= index; i++) {
        if (fallow_layout_region(layout, i, &out->of, &out->offset) != FALLOW_OK) {
            return false;
        }
        bool is_kept = (out->of.flags & FALLOW_REGION_PERSISTENT) != 0;
        out->letter = is_kept ? ' ' : letters[scratch++ % (sizeof letters - 1)];
    }
    out->contents =
        (unsigned)out->of.init < sizeof contents / sizeof *contents ? contents[out->of.init] : "?";
    return true;
}

static void print_table(const fallow_layout *layout)
{
    struct shown region;
    printf("   %-24s %16s %16s  %-13s %s\n", "region", "bytes", "offset", "holds at first",
           "phases");
    for (size_t i = 0; show_region(layout, i, &region); i++) {
        char offset[24] = "-", phases[32] = "kept";
        if (region.letter != ' ') {
            snprintf(offset, sizeof offset, "%zu", region.offset);
            snprintf(phases, sizeof phases, "%u to %u", region.of.first_phase,
                     region.of.last_phase);
        }
        printf(" %c %-24s %16zu %16s  %-13s %s\n", region.letter, region.of.name,
               region.of.size_bytes, offset, region.contents, phases);
    }
}

/* Return the letter of the scratch region that has this byte in this phase. */
static char letter_at(const fallow_layout *layout, size_t byte, uint32_t phase)
{
    struct shown region;
    for (size_t i = 0; show_region(layout, i, &region); i++) {
        if (region.letter != ' ' && phase >= region.of.first_phase &&
            phase <= region.of.last_phase && byte >= region.offset &&
            byte < region.offset + region.of.size_bytes) {
            return region.letter;
        }
    }
    return '.';
}

static void print_picture(const fallow_layout *layout, const fallow_path *path)
{
    struct shown region;
    size_t bytes = fallow_layout_bytes(layout);
    uint64_t phases = 1;
    for (size_t i = 0; show_region(layout, i, &region); i++) {
        phases = region.letter == ' ' ? phases : flw_max(phases, region.of.last_phase + 1);
    }
    uint64_t columns = flw_min(phases, PICTURE_COLUMNS), width = columns <= 8 ? 6 : 1;
    if (bytes == 0) {
        return;
    }
    printf("\nscratch, phases from left to right");
    for (size_t i = 0; path->phases[i] != NULL; i++) {
        printf("%s%s", i == 0 ? ": " : ", ", path->phases[i]);
    }
    for (int row = PICTURE_ROWS - 1; row >= 0; row--) {
        size_t middle = (size_t)((double)bytes / PICTURE_ROWS * (row + 0.5));
        printf("\n%9.1f MiB  ", (double)bytes / PICTURE_ROWS * row / (1 << 20));
        for (uint64_t i = 0; i < columns * width; i++) {
            putchar(letter_at(layout, middle, (uint32_t)(i / width * phases / columns)));
        }
    }
    putchar('\n');
}

static double zero_fill_us(const struct settings *settings, size_t bytes)
{
    return (double)bytes / (double)settings->bandwidth * 1e6;
}

static void print_text(const struct settings *settings, const fallow_layout *layout)
{
    size_t bytes = fallow_layout_bytes(layout), bound = fallow_layout_lower_bound(layout);
    size_t kept = fallow_layout_persistent_bytes(layout);
    printf("%s of %s\n\n", settings->path->name, settings->model->name);
    print_table(layout);
    print_picture(layout, settings->path);
    printf("\nscratch        %16zu bytes\n", bytes);
    printf(
        "lower bound    %16zu bytes: most live bytes in one phase; the scratch is %.3f times as large\n",
        bound, bound == 0 ? 1.0 : (double)bytes / (double)bound);
    printf("kept           %16zu bytes, apart from scratch\n", kept);
    printf("zeros          %16.1f us would fill it all, at %.2f TB/s (computed, not measured)\n",
           zero_fill_us(settings, bytes + kept), (double)settings->bandwidth / 1e12);
}

static void print_json(const struct settings *settings, const fallow_layout *layout)
{
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    struct shown region;
    size_t bytes = fallow_layout_bytes(layout), kept = fallow_layout_persistent_bytes(layout);
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "path", settings->path->name);
    flw_json_text(out, "model", settings->model->name);
    FLW_JSON_NUMBERS(
        out, {"scratch_bytes", bytes}, {"lower_bound_bytes", fallow_layout_lower_bound(layout)},
        {"persistent_bytes", kept}, {"bandwidth_bytes_per_second", settings->bandwidth});
    flw_json_fixed(out, "computed_zero_fill_us", 3, zero_fill_us(settings, bytes + kept));
    flw_json_begin(out, "regions", '[');
    for (size_t i = 0; show_region(layout, i, &region); i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", region.of.name);
        FLW_JSON_NUMBERS(out, {"bytes", region.of.size_bytes},
                         {"align_bytes", region.of.align_bytes}, {"offset", region.offset});
        flw_json_text(out, "class", region.contents);
        flw_json_bool(out, "persistent", region.letter == ' ');
        FLW_JSON_NUMBERS(out, {"first_phase", region.of.first_phase},
                         {"last_phase", region.of.last_phase});
        flw_json_end(out, '}');
    }
    puts("]}");
}

int flw_command_layout(int argc, char **argv)
{
    struct settings settings = {.bandwidth = 4800000000000};
    fallow_layout *layout = NULL;
    fallow_step_init(&settings.step);
    int code = parse(argc, argv, &settings);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    fallow_status status = settings.path->make(settings.model, &settings.step, &layout);
    if (status != FALLOW_OK) {
        return flw_refuse(FLW_EXIT_FAILED,
                          "%s cannot be made for %s with these sizes (%s): the model lacks experts "
                          "or latent attention, a rank count does not divide, or a size is above "
                          "2^31",
                          settings.path->name, settings.model->name, fallow_status_name(status));
    }
    if (settings.is_json) {
        print_json(&settings, layout);
    } else {
        print_text(&settings, layout);
    }
    fallow_layout_destroy(layout);
    return FLW_EXIT_OK;
}
