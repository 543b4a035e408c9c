/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running a plan: parsing the notation, and making the events.
 */
#include "trace/gen/plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/io/progress.h"

#define LAUNCH_NS    2000
#define ONE_LETTER   1
#define WORD_LETTERS 12 /* identified by a key of 64 bits */

/* ---- events ---- */

/* Return the bytes of a block; 0 for FLW_GEN_NO_BLOCK. */
static uint64_t size_of(const struct flw_gen *gen, uint32_t block)
{
    return block == FLW_GEN_NO_BLOCK ? 0 : gen->build.trace->blocks[block].size_bytes;
}

/* Add an event; do nothing after a failure, like the functions below. */
static void add_event(struct flw_gen *gen, enum flw_trace_op op, uint32_t block, uint64_t stream)
{
    if (gen->has_failed) {
        return;
    }
    size_t count = gen->context.record = gen->build.trace->event_count;
    struct flw_trace_event event = {.time_ns = gen->time_ns,
                                    .size_bytes = size_of(gen, block),
                                    .block = block,
                                    .stream = (uint16_t)stream,
                                    .op = (uint8_t)op};
    if (count % FLW_TRACE_PROGRESS_EVENTS == 0) {
        flw_trace_tell(
            &(struct flw_trace_progress){.verb = "making", .unit = "events", .done = count});
    }
    if (count >= FLW_GEN_EVENTS_MAX) {
        flw_gen_fail(gen, "the trace has more than %" PRIu64 " events; generate fewer steps",
                     FLW_GEN_EVENTS_MAX);
    } else if (!flw_build_add_context(&gen->build, &gen->context) ||
               !flw_build_add_event(&gen->build, &event)) {
        flw_gen_fail(gen, FLW_GEN_NO_MEMORY);
    }
}

/* Allocate a block; with `is_written` also launch a kernel that writes it: time passes for the launch and per byte.
 * Size 0: no block. */
static uint32_t allocate(struct flw_gen *gen, uint64_t size_bytes, uint64_t stream, bool is_written)
{
    uint32_t number = (uint32_t)gen->build.trace->block_count;
    struct flw_trace_block block = {.size_bytes = size_bytes, .stream = (uint16_t)stream};
    if (size_bytes == 0 || gen->has_failed) {
        return FLW_GEN_NO_BLOCK;
    }
    if (size_bytes > FLW_GEN_BLOCK_MAX) {
        flw_gen_fail(gen, "a block of %" PRIu64 " bytes, more than any device has; lower the sizes",
                     size_bytes);
    } else if (!flw_build_add_block(&gen->build, &block)) {
        flw_gen_fail(gen, FLW_GEN_NO_MEMORY);
    }
    add_event(gen, FLW_TRACE_ALLOC, number, stream);
    gen->live_bytes += size_bytes;
    if (gen->has_failed) {
        return FLW_GEN_NO_BLOCK;
    }
    if (is_written && gen->launch != NULL) {
        gen->launch(gen, stream, size_bytes, stream);
    } else if (is_written) {
        gen->time_ns += LAUNCH_NS + size_bytes / FLW_GEN_BYTES_PER_NS;
    }
    return number;
}

/* Launch a kernel of the stream that reads the block. Add an event, unless gen->launch has a clock and the stream is
 * the block's own. */
static void read_block(struct flw_gen *gen, uint32_t block, uint64_t stream)
{
    if (block == FLW_GEN_NO_BLOCK || gen->has_failed) {
        return;
    }
    uint64_t own = gen->build.trace->blocks[block].stream;
    if (stream != own || gen->launch == NULL) {
        add_event(gen, FLW_TRACE_USE, block, stream);
    }
    if (gen->launch != NULL) {
        gen->launch(gen, stream, size_of(gen, block), own);
    }
}

/* Free a block on its own stream. */
static void free_block(struct flw_gen *gen, uint32_t block)
{
    if (block != FLW_GEN_NO_BLOCK && !gen->has_failed) {
        add_event(gen, FLW_TRACE_FREE, block, gen->build.trace->blocks[block].stream);
        gen->live_bytes -= size_of(gen, block);
    }
}

/* Add the begin or the end of a phase, or of a capture, which has a NULL name. */
static void mark(struct flw_gen *gen, enum flw_trace_op op, const char *name)
{
    struct flw_trace_detail detail = flw_build_no_detail();
    add_event(gen, op, FLW_GEN_NO_BLOCK, 0);
    if (name != NULL && !gen->has_failed &&
        (!flw_intern_add_text(&gen->build.trace->names, name, strlen(name), &detail.name) ||
         !flw_build_add_detail(&gen->build, detail))) {
        flw_gen_fail(gen, FLW_GEN_NO_MEMORY);
    }
}

/* ---- names ---- */

struct reader {
    struct flw_gen *gen;
    const char *at;
};

struct name {
    uint64_t key;
    uint64_t *number;
};

static uint64_t read_sum(struct reader *r);
static uint64_t read_factor(struct reader *r);

static void take_character(struct reader *r, char character)
{
    if (*r->at != character) {
        fprintf(stderr, "fallow: a plan has no '%c' at: %s\n", character, r->at);
        abort();
    }
    r->at++;
}

static struct name read_name(struct reader *r, size_t letters_max)
{
    unsigned letter = (unsigned char)*r->at;
    uint64_t key = 0, index = 0;
    for (size_t i = 0; i < letters_max && isalpha((unsigned char)*r->at); i++) {
        key = key * 32 + (unsigned)(*r->at++ & 31);
    }
    if (*r->at == '.') {
        r->at++;
        index = read_factor(r);
        key ^= (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    }
    return (struct name){key, &r->gen->numbers[index % FLW_GEN_INDICES][letter % FLW_GEN_LETTERS]};
}

static uint32_t find_block(struct reader *r)
{
    return flw_addressmap_find(&r->gen->held, read_name(r, WORD_LETTERS).key);
}

/* ---- numbers ---- */

static uint64_t read_primary(struct reader *r)
{
    uint64_t low, high;
    if (isalpha((unsigned char)*r->at)) {
        return *read_name(r, ONE_LETTER).number;
    }
    switch (*r->at) {
    case '[':
        r->at++;
        low = read_sum(r);
        take_character(r, ',');
        high = read_sum(r);
        take_character(r, ']');
        return flw_gen_between(r->gen, low, high);
    case '(':
        r->at++;
        low = read_sum(r);
        take_character(r, ')');
        return low;
    case '!':
        r->at++;
        return read_primary(r) == 0;
    case '$':
        r->at++;
        return isalpha((unsigned char)*r->at) ? size_of(r->gen, find_block(r)) : r->gen->live_bytes;
    default:
        return strtoull(r->at, (char **)&r->at, 10);
    }
}

static uint64_t read_factor(struct reader *r)
{
    uint64_t base = read_primary(r), number = base;
    if (*r->at == '^') {
        r->at++;
        number = 1;
        for (uint64_t power = read_primary(r); power > 0; power--) {
            number *= base;
        }
    }
    return number;
}

static uint64_t read_product(struct reader *r)
{
    uint64_t number = read_factor(r);
    for (;;) {
        char sign = *r->at;
        if (isalnum((unsigned char)sign) || sign == '(' || sign == '[' || sign == '$' ||
            sign == '!') {
            number *= read_factor(r);
            continue;
        }
        if (sign == '\0' || strchr("*/%&|", sign) == NULL) {
            return number;
        }
        r->at++;
        uint64_t next = read_factor(r);
        number = sign == '*'   ? number * next
                 : sign == '&' ? flw_min(number, next)
                 : sign == '|' ? flw_max(number, next)
                 : next == 0   ? 0
                 : sign == '/' ? number / next
                               : number % next;
    }
}

static uint64_t read_sum(struct reader *r)
{
    uint64_t number = read_product(r);
    while (*r->at == '+' || *r->at == '-') {
        bool is_plus = *r->at++ == '+';
        uint64_t next = read_product(r);
        number = is_plus ? number + next : number - next;
    }
    return number;
}

/* ---- statements ---- */

static void run_statements(struct reader *r);

/* Run the braces of a statement `count` times. */
static void run_braces(struct reader *r, uint64_t count, uint64_t *counter)
{
    take_character(r, '{');
    const char *begin = r->at;
    for (uint64_t i = 0; i < count && !r->gen->has_failed; i++) {
        *counter = i;
        r->at = begin;
        run_statements(r);
    }
    if (r->at != begin) { /* at the closing brace */
        r->at++;
        return;
    }
    for (size_t depth = 1; depth > 0; r->at++) {
        depth += (*r->at == '{') - (*r->at == '}');
    }
}

static void hold(struct reader *r, uint64_t key, uint32_t block)
{
    struct flw_gen *gen = r->gen;
    if (block == FLW_GEN_NO_BLOCK) {
        return;
    }
    if (flw_addressmap_find(&gen->held, key) != FLW_ADDRESSMAP_ABSENT) {
        flw_gen_fail(gen, "internal error: a plan gives two blocks one name before: %.40s", r->at);
    } else if (!flw_addressmap_put(&gen->held, key, block)) {
        flw_gen_fail(gen, "no memory to hold the names of blocks");
    }
}

static void run_named(struct reader *r)
{
    struct name name = read_name(r, WORD_LETTERS);
    uint64_t stream = 0;
    char sign = *r->at++;
    switch (sign) {
    case ':':
        *name.number = read_sum(r);
        return;
    case '*':
        run_braces(r, read_factor(r), name.number);
        return;
    case '>':
        stream = read_factor(r);
        read_block(r->gen, flw_addressmap_find(&r->gen->held, name.key), stream);
        return;
    case '<':
        hold(r, name.key, flw_addressmap_remove(&r->gen->held, read_name(r, WORD_LETTERS).key));
        return;
    case '+': {
        uint32_t block = allocate(r->gen, read_sum(r), 0, false);
        if (name.key != 0) {
            hold(r, name.key, block);
        }
        return;
    }
    case '@':
        stream = read_factor(r);
        break;
    default:
        r->at--;
    }
    take_character(r, '=');
    hold(r, name.key, allocate(r->gen, read_sum(r), stream, true));
}

/* Read the word up to a space or a brace. */
static void read_word(struct reader *r, char *out)
{
    size_t bytes = strcspn(r->at, " }");
    snprintf(out, FLW_PLAN_NAME_BYTES, "%.*s", (int)bytes, r->at);
    r->at += bytes;
}

static void run_statement(struct reader *r)
{
    char word[FLW_PLAN_NAME_BYTES];
    uint64_t once;
    switch (*r->at++) {
    case '-':
        free_block(r->gen, flw_addressmap_remove(&r->gen->held, read_name(r, WORD_LETTERS).key));
        return;
    case '~':
        r->gen->time_ns += read_sum(r);
        return;
    case '?':
        run_braces(r, read_factor(r) != 0, &once);
        return;
    case '.':
        read_word(r, word);
        flw_plan_call(r->gen, word);
        return;
    case '(':
        r->gen->context.pool = 1;
        mark(r->gen, FLW_TRACE_POOL_BEGIN, NULL);
        return;
    case ')':
        mark(r->gen, FLW_TRACE_POOL_END, NULL);
        r->gen->context.pool = 0;
        return;
    case '<':
    case '>':
        once = r->at[-1] == '<' ? FLW_TRACE_PHASE_BEGIN : FLW_TRACE_PHASE_END;
        read_word(r, word);
        mark(r->gen, (enum flw_trace_op)once, word);
        return;
    default:
        r->at--;
        run_named(r);
    }
}

static void run_statements(struct reader *r)
{
    while (*r->at != '\0' && *r->at != '}') {
        if (*r->at == ' ') {
            r->at++;
        } else {
            run_statement(r);
        }
    }
}

void flw_plan_run(struct flw_gen *gen, const char *plan)
{
    struct reader r = {gen, plan};
    run_statements(&r);
}

void flw_plan_call(struct flw_gen *gen, const char *name)
{
    const struct flw_plan *plan = gen->kind->plans;
    while (strcmp(plan->name, name) != 0) {
        plan++;
    }
    if (plan->run != NULL) {
        plan->run(gen);
    } else {
        flw_plan_run(gen, plan->text);
    }
}
