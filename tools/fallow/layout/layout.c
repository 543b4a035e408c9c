/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow layout`: a ready layout as a table, a picture of regions over phases, and JSON.
 * Does not: place anything (the library does), touch a device.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/options.h"
#include "fallow/layouts.h"
#include "trace/io/jsonwriter.h"

#define PICTURE_ROWS    16
#define PICTURE_COLUMNS 64

static const char help_begin[] =
    "usage: fallow layout PATH --model NAME [OPTIONS]\n"
    "\n"
    "The workspace of a step: its regions, where they lie, which share bytes, what the whole takes\n"
    "against the least that is possible, and what filling it with zeros would cost.\n"
    "\n"
    "paths\n";

static const char help_end[] =
    "\n"
    "  --model NAME          which one\n"
    "  --batch N             requests (1)               --tokens N   in the step (batch)\n"
    "  --context N           longest, tokens (8192)     --page N     tokens of a cache page (64)\n"
    "  --chunk N             tokens of an attention chunk, or of a context chunk (65536)\n"
    "  --draft N             tokens of speculative decoding\n"
    "  --splits N            of a decode (32)           --sms N      multiprocessors (132)\n"
    "  --tp N  --ep N        ranks that heads, experts are divided by (1)\n"
    "  --block N             rows that a product of experts takes at a time (128)\n"
    "  --pad-values          latent attention: values as wide as keys\n"
    "  --overlap             latent attention: gather a chunk while the one before is worked on\n"
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
    fputs("\n", stdout);
    fputs(help_end, stdout);
}

/* ---- command line */

static bool take_model(void *member, const char *name)
{
    const fallow_model **model = member;
    *model = fallow_model_find(name);
    if (*model == NULL) {
        struct flw_guess guess = {.word = name, .length = strlen(name)};
        char hint[FLW_GUESS_BYTES];
        for (size_t i = 0; fallow_model_preset(i) != NULL; i++) {
            flw_guess_offer(&guess, fallow_model_preset(i)->name);
        }
        flw_complain("there is no model '%s'%sfallow layout --help lists them", name,
                     flw_guess_say(&guess, "", hint));
    }
    return *model != NULL;
}

#define OPTION(member) offsetof(struct settings, member)
#define NUMBER(word, member)                                                               \
    {                                                                                      \
        .name = word, .kind = FLW_OPTION_COUNT, .offset = OPTION(step.member), .least = 1, \
        .most = UINT64_C(1) << 40                                                          \
    }

static const struct flw_option option_list[] = {
    {.name = "model", .kind = FLW_OPTION_TAKE, .offset = OPTION(model), .take = take_model},
    {.name = "bandwidth", .kind = FLW_OPTION_BYTES, .offset = OPTION(bandwidth)},
    {.name = "pad-values", .kind = FLW_OPTION_SET, .offset = OPTION(step.pads_values)},
    {.name = "overlap", .kind = FLW_OPTION_SET, .offset = OPTION(step.overlaps)},
    {.name = "quantise", .kind = FLW_OPTION_SET, .offset = OPTION(step.quantises)},
    {.name = "in-place", .kind = FLW_OPTION_SET, .offset = OPTION(step.activates_in_place)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = OPTION(is_json)},
    NUMBER("batch", batch),
    NUMBER("tokens", tokens),
    NUMBER("context", context),
    NUMBER("page", page_size),
    NUMBER("chunk", chunk),
    NUMBER("draft", draft_tokens),
    NUMBER("splits", splits),
    NUMBER("sms", sm_count),
    NUMBER("tp", tensor_ranks),
    NUMBER("ep", expert_ranks),
    NUMBER("block", block_rows),
    {.name = NULL}};
#undef NUMBER
#undef OPTION

_Static_assert(sizeof(bool) == sizeof((fallow_step){0}.pads_values), "FLW_OPTION_SET sets them");

static bool find_path(struct settings *settings, const char *name)
{
    struct flw_guess guess = {.word = name, .length = strlen(name)};
    char hint[FLW_GUESS_BYTES];
    for (size_t i = 0; fallow_path_at(i) != NULL; i++) {
        if (strcmp(fallow_path_at(i)->name, name) == 0) {
            settings->path = fallow_path_at(i);
            return true;
        }
        flw_guess_offer(&guess, fallow_path_at(i)->name);
    }
    flw_complain("there is no path '%s'%sfallow layout --help lists them", name,
                 flw_guess_say(&guess, "", hint));
    return false;
}

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct flw_options command = {
        .command = "layout", .print_help = print_help, .list = option_list};
    int code = flw_options_read(&command, settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind + 1 != argc) {
        flw_complain("layout takes one path; see fallow layout --help");
        return FLW_EXIT_USAGE;
    }
    if (!find_path(settings, argv[optind])) {
        return FLW_EXIT_USAGE;
    }
    if (settings->model == NULL) {
        flw_complain("which model? --model NAME; fallow layout --help lists them");
        return FLW_EXIT_USAGE;
    }
    return FLW_OPTIONS_READ;
}

/* ---- what is shown */

static const char *class_name(fallow_init_class init)
{
    static const char *const names[] = {"dirty",        "dirty prefix", "once",
                                        "leading zero", "counter",      "zero",
                                        "sentinel",     "valid tail",   "neutral tail"};
    return (unsigned)init < sizeof names / sizeof *names ? names[init] : "?";
}

static bool is_persistent(const fallow_region *region)
{
    return (region->flags & FALLOW_REGION_PERSISTENT) != 0;
}

static char letter_of(size_t scratch_index)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return letters[scratch_index % (sizeof letters - 1)];
}

static uint32_t last_phase_of(const fallow_layout *layout)
{
    uint32_t last = 0;
    fallow_region region;
    for (size_t i = 0; fallow_layout_region(layout, i, &region, NULL) == FALLOW_OK; i++) {
        if (!is_persistent(&region) && region.last_phase > last) {
            last = region.last_phase;
        }
    }
    return last;
}

static void print_table(const fallow_layout *layout)
{
    fallow_region region;
    size_t offset, scratch = 0;
    printf("   %-24s %16s %16s  %-13s %s\n", "region", "bytes", "offset", "holds at first",
           "phases");
    for (size_t i = 0; fallow_layout_region(layout, i, &region, &offset) == FALLOW_OK; i++) {
        if (is_persistent(&region)) {
            printf("   %-24s %16zu %16s  %-13s kept\n", region.name, region.size_bytes, "-",
                   class_name(region.init));
        } else {
            printf(" %c %-24s %16zu %16zu  %-13s %u to %u\n", letter_of(scratch++), region.name,
                   region.size_bytes, offset, class_name(region.init), region.first_phase,
                   region.last_phase);
        }
    }
}

/* The letter of the scratch region that has this byte in this phase. */
static char letter_at(const fallow_layout *layout, size_t byte, uint32_t phase)
{
    fallow_region region;
    size_t offset, scratch = 0;
    for (size_t i = 0; fallow_layout_region(layout, i, &region, &offset) == FALLOW_OK; i++) {
        if (is_persistent(&region)) {
            continue;
        }
        if (phase >= region.first_phase && phase <= region.last_phase && byte >= offset &&
            byte < offset + region.size_bytes) {
            return letter_of(scratch);
        }
        scratch++;
    }
    return '.';
}

static void print_picture(const fallow_layout *layout, const fallow_path *path)
{
    size_t bytes = fallow_layout_bytes(layout);
    uint32_t phases = last_phase_of(layout) + 1;
    uint32_t columns = phases < PICTURE_COLUMNS ? phases : PICTURE_COLUMNS;
    uint32_t width = columns <= 8 ? 6 : 1; /* of a phase */
    if (bytes == 0) {
        return;
    }
    printf("\nscratch, phases from left to right");
    for (size_t i = 0; path->phases[i] != NULL; i++) {
        printf("%s%s", i == 0 ? ": " : ", ", path->phases[i]);
    }
    putchar('\n');
    for (int row = PICTURE_ROWS - 1; row >= 0; row--) {
        printf("%9.1f MiB  ", (double)bytes / PICTURE_ROWS * row / (1 << 20));
        for (uint32_t column = 0; column < columns; column++) {
            size_t middle = (size_t)((double)bytes / PICTURE_ROWS * (row + 0.5));
            char letter =
                letter_at(layout, middle, (uint32_t)((uint64_t)column * phases / columns));
            for (uint32_t k = 0; k < width; k++) {
                putchar(letter);
            }
        }
        putchar('\n');
    }
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
    printf("lower bound    %16zu bytes: the most alive in one phase; %.3f times that\n", bound,
           bound == 0 ? 1.0 : (double)bytes / (double)bound);
    printf("kept           %16zu bytes, apart from scratch\n", kept);
    printf("zeros          %16.1f us would fill it all, at %.2f TB/s (computed, not measured)\n",
           zero_fill_us(settings, bytes + kept), (double)settings->bandwidth / 1e12);
}

static void print_json(const struct settings *settings, const fallow_layout *layout)
{
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    fallow_region region;
    size_t offset, bytes = fallow_layout_bytes(layout);
    size_t kept = fallow_layout_persistent_bytes(layout);
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "path", settings->path->name);
    flw_json_text(out, "model", settings->model->name);
    FLW_JSON_NUMBERS(
        out, {"scratch_bytes", bytes}, {"lower_bound_bytes", fallow_layout_lower_bound(layout)},
        {"persistent_bytes", kept}, {"bandwidth_bytes_per_second", settings->bandwidth});
    flw_json_fixed(out, "computed_zero_fill_us", 3, zero_fill_us(settings, bytes + kept));
    flw_json_begin(out, "regions", '[');
    for (size_t i = 0; fallow_layout_region(layout, i, &region, &offset) == FALLOW_OK; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", region.name);
        FLW_JSON_NUMBERS(out, {"bytes", region.size_bytes}, {"align_bytes", region.align_bytes},
                         {"offset", offset});
        flw_json_text(out, "class", class_name(region.init));
        flw_json_bool(out, "persistent", is_persistent(&region));
        FLW_JSON_NUMBERS(out, {"first_phase", region.first_phase},
                         {"last_phase", region.last_phase});
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
        flw_complain("%s cannot be made of %s with these sizes (%s): experts, latent attention, or "
                     "a rank count that divides, is missing, or a size is above 2^31",
                     settings.path->name, settings.model->name, fallow_status_name(status));
        return FLW_EXIT_FAILED;
    }
    if (settings.is_json) {
        print_json(&settings, layout);
    } else {
        print_text(&settings, layout);
    }
    fallow_layout_destroy(layout);
    return FLW_EXIT_OK;
}
