/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a generated trace's blocks, time and header.
 */
#include "trace/gen/gen.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "trace/trace/measure.h"

struct flw_gen_values flw_gen_initial_values(const struct flw_gen_kind *kind)
{
    struct flw_gen_values values = {.path = NULL};
    for (size_t i = 0; i < kind->option_count; i++) {
        values.numbers[(unsigned)kind->options[i].letter] = kind->options[i].initial;
    }
    return values;
}

bool flw_gen_fail(struct flw_gen *gen, const char *format, ...)
{
    if (!gen->has_failed) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(gen->message, FLW_TRACE_MESSAGE_BYTES, format, arguments);
        va_end(arguments);
    }
    gen->has_failed = true;
    return false;
}

uint64_t flw_gen_between(struct flw_gen *gen, uint64_t low, uint64_t high)
{
    return low + flw_random_next(&gen->random_state) % (high - low + 1);
}

void flw_gen_add_streams(struct flw_gen *gen, uint64_t count)
{
    uint16_t stream;
    for (uint64_t i = 0; i < count && !gen->has_failed; i++) {
        if (!flw_build_add_stream(&gen->build, i, &stream)) {
            flw_gen_fail(gen, FLW_GEN_NO_MEMORY);
        }
    }
}

/* ---- the header ---- */

/* Print " --NAME VALUE". Of a path only the last part, because the folder does not change the trace. */
static void print_option(const struct flw_gen_option *option, const struct flw_gen_values *values,
                         FILE *file)
{
    uint64_t number = values->numbers[(unsigned)option->letter];
    if (option->kind == FLW_GEN_CHOICE) {
        fprintf(file, " --%s %s", option->name, option->words[number]);
    } else if (option->kind != FLW_GEN_FILE) {
        fprintf(file, " --%s %" PRIu64, option->name, number);
    } else if (values->path != NULL) {
        const char *slash = strrchr(values->path, '/');
        fprintf(file, " --%s ", option->name);
        for (const char *at = slash == NULL ? values->path : slash + 1; *at != '\0'; at++) {
            unsigned char c = (unsigned char)*at;
            putc(c < 0x20 || c == 0x7F ? '?' : c, file);
        }
    }
}

static void print_notes(const struct flw_gen *gen, FILE *file)
{
    const struct flw_gen_kind *kind = gen->kind;
    const struct flw_trace *trace = gen->build.trace;
    size_t live_count = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        live_count += !trace->blocks[i].freed;
    }
    fprintf(file, "generator %s %u\ncommand fallow gen %s", kind->name, kind->version, kind->name);
    for (size_t i = 0; i < kind->option_count; i++) {
        print_option(&kind->options[i], gen->values, file);
    }
    fprintf(file, "\n# sizes and times as in src/trace/gen/%s.c\n%s", kind->name, gen->note);
    fprintf(file, "alive_at_end %zu blocks, %" PRIu64 " bytes\n", live_count, gen->live_bytes);
}

/* ---- together ---- */

static void fill(struct flw_gen *gen)
{
    size_t bytes = 0;
    gen->kind->run(gen);
    if (!gen->has_failed && gen->build.trace->block_count == 0) {
        flw_gen_fail(gen, "these options leave no allocation to make; see fallow gen %s --help",
                     gen->kind->name);
    }
    if (gen->has_failed) {
        return;
    }
    gen->build.trace->has_times = true;
    const char *wrong = flw_measure_trace(gen->build.trace);
    FILE *file = open_memstream(&gen->build.trace->notes, &bytes);
    if (file != NULL) {
        print_notes(gen, file);
    }
    if (file == NULL || fclose(file) != 0) {
        flw_gen_fail(gen, FLW_GEN_NO_MEMORY);
    } else if (wrong != NULL) {
        flw_gen_fail(gen, "%s", wrong);
    }
}

bool flw_gen_generate(const struct flw_gen_kind *kind, const struct flw_gen_values *values,
                      struct flw_trace **out_trace, char *message)
{
    unsigned seed = (unsigned)kind->options[kind->option_count - 1].letter;
    struct flw_gen gen = {
        .kind = kind, .values = values, .random_state = values->numbers[seed], .message = message};
    memcpy(gen.numbers[0], values->numbers, sizeof values->numbers);
    *out_trace = NULL;
    message[0] = '\0';
    if (flw_build_init(&gen.build, kind->name, "generated")) {
        fill(&gen);
    } else {
        flw_gen_fail(&gen, FLW_GEN_NO_MEMORY);
    }
    flw_build_end(&gen.build, !gen.has_failed, out_trace);
    flw_addressmap_finish(&gen.held);
    return *out_trace != NULL;
}
