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
#include "trace/io/progress.h"
#include "trace/trace/measure.h"

#define LAUNCH_NS 2000

struct flw_gen_values flw_gen_initial_values(const struct flw_gen_kind *kind)
{
    struct flw_gen_values values = {{0}, {NULL}};
    for (size_t i = 0; i < kind->option_count; i++) {
        values.numbers[i] = kind->options[i].initial;
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

static void fail_memory(struct flw_gen *gen)
{
    flw_gen_fail(gen, "no memory to hold the trace; ask for fewer steps");
}

uint64_t flw_gen_between(struct flw_gen *gen, uint64_t low, uint64_t high)
{
    return low + flw_random_next(&gen->random_state) % (high - low + 1);
}

/* ---- events ---- */

void flw_gen_add_streams(struct flw_gen *gen, uint64_t count)
{
    uint16_t stream;
    for (uint64_t i = 0; i < count && !gen->has_failed; i++) {
        if (!flw_build_add_stream(&gen->build, i, &stream)) {
            fail_memory(gen);
        }
    }
}

static void add_event(struct flw_gen *gen, enum flw_trace_op op, uint32_t block, uint64_t stream)
{
    if (gen->has_failed) {
        return;
    }
    size_t count = gen->context.record = gen->build.trace->event_count;
    struct flw_trace_event event = {.time_ns = gen->time_ns,
                                    .size_bytes = flw_gen_size(gen, block),
                                    .block = block,
                                    .stream = (uint16_t)stream,
                                    .op = (uint8_t)op};
    if (count % FLW_TRACE_PROGRESS_EVENTS == 0) {
        flw_trace_tell(
            &(struct flw_trace_progress){.verb = "making", .unit = "events", .done = count});
    }
    if (count >= FLW_GEN_EVENTS_MAX) {
        flw_gen_fail(gen, "the trace has more than %" PRIu64 " events; ask for fewer steps",
                     FLW_GEN_EVENTS_MAX);
    } else if (!flw_build_add_context(&gen->build, &gen->context) ||
               !flw_build_add_event(&gen->build, &event)) {
        fail_memory(gen);
    }
}

uint32_t flw_gen_take_quick(struct flw_gen *gen, uint64_t size_bytes, uint64_t stream)
{
    if (size_bytes == 0 || gen->has_failed) {
        return FLW_GEN_NO_BLOCK;
    }
    if (size_bytes > FLW_GEN_BLOCK_MAX) {
        flw_gen_fail(gen, "a block of %" PRIu64 " bytes, more than any device has; lower the sizes",
                     size_bytes);
        return FLW_GEN_NO_BLOCK;
    }
    uint32_t number = (uint32_t)gen->build.trace->block_count;
    struct flw_trace_block block = {.size_bytes = size_bytes, .stream = (uint16_t)stream};
    if (!flw_build_add_block(&gen->build, &block)) {
        fail_memory(gen);
        return FLW_GEN_NO_BLOCK;
    }
    add_event(gen, FLW_TRACE_ALLOC, number, stream);
    gen->live_bytes += size_bytes;
    return gen->has_failed ? FLW_GEN_NO_BLOCK : number;
}

uint32_t flw_gen_take(struct flw_gen *gen, uint64_t size_bytes, uint64_t stream)
{
    uint32_t block = flw_gen_take_quick(gen, size_bytes, stream);
    if (block != FLW_GEN_NO_BLOCK && gen->launch != NULL) {
        gen->launch(gen, stream, size_bytes, stream);
    } else if (block != FLW_GEN_NO_BLOCK) {
        gen->time_ns += LAUNCH_NS + size_bytes / FLW_GEN_BYTES_PER_NS;
    }
    return block;
}

uint64_t flw_gen_size(const struct flw_gen *gen, uint32_t block)
{
    return block == FLW_GEN_NO_BLOCK ? 0 : gen->build.trace->blocks[block].size_bytes;
}

void flw_gen_use(struct flw_gen *gen, uint32_t block, uint64_t stream)
{
    if (block == FLW_GEN_NO_BLOCK || gen->has_failed) {
        return;
    }
    uint64_t own = gen->build.trace->blocks[block].stream;
    if (stream != own || gen->launch == NULL) {
        add_event(gen, FLW_TRACE_USE, block, stream);
    }
    if (gen->launch != NULL) {
        gen->launch(gen, stream, flw_gen_size(gen, block), own);
    }
}

void flw_gen_give(struct flw_gen *gen, uint32_t block)
{
    if (block != FLW_GEN_NO_BLOCK && !gen->has_failed) {
        add_event(gen, FLW_TRACE_FREE, block, gen->build.trace->blocks[block].stream);
        gen->live_bytes -= flw_gen_size(gen, block);
    }
}

void flw_gen_mark(struct flw_gen *gen, enum flw_trace_op op, const char *name)
{
    struct flw_trace_detail detail = flw_build_no_detail();
    add_event(gen, op, FLW_GEN_NO_BLOCK, 0);
    if (name != NULL && !gen->has_failed &&
        (!flw_build_add_name(&gen->build, name, strlen(name), &detail.name) ||
         !flw_build_add_detail(&gen->build, detail))) {
        fail_memory(gen);
    }
}

/* ---- the header ---- */

/* " --NAME VALUE"; of a file the last part of its path: where it lies is no part of the trace. */
static void print_option(const struct flw_gen_option *option, uint64_t number, const char *path,
                         FILE *file)
{
    if (option->kind == FLW_GEN_FILE && path == NULL) {
        return;
    }
    fprintf(file, " --%s ", option->name);
    if (option->kind == FLW_GEN_CHOICE) {
        fputs(option->words[number], file);
    } else if (option->kind != FLW_GEN_FILE) {
        fprintf(file, "%" PRIu64, number);
    } else {
        const char *slash = strrchr(path, '/');
        for (path = slash == NULL ? path : slash + 1; *path != '\0'; path++) {
            unsigned char c = (unsigned char)*path;
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
        print_option(&kind->options[i], gen->values->numbers[i], gen->values->paths[i], file);
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
        fail_memory(gen);
    } else if (wrong != NULL) {
        flw_gen_fail(gen, "%s", wrong);
    }
}

bool flw_gen_generate(const struct flw_gen_kind *kind, const struct flw_gen_values *values,
                      struct flw_trace **out_trace, char *message)
{
    struct flw_gen gen = {.kind = kind,
                          .values = values,
                          .random_state = values->numbers[kind->option_count - 1],
                          .message = message};
    for (size_t i = 0; i < kind->option_count; i++) {
        gen.numbers[0][(unsigned)kind->options[i].letter] = values->numbers[i];
    }
    *out_trace = NULL;
    message[0] = '\0';
    if (flw_build_init(&gen.build, kind->name, "generated")) {
        fill(&gen);
    } else {
        fail_memory(&gen);
    }
    flw_build_end(&gen.build, !gen.has_failed, out_trace);
    flw_addressmap_finish(&gen.held);
    return *out_trace != NULL;
}
