/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: running a plan.
 */
#include "trace/gen/plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#define ONE_LETTER   1
#define WORD_LETTERS 12 /* told apart by a key of 64 bits */

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
        return isalpha((unsigned char)*r->at) ? flw_gen_size(r->gen, find_block(r))
                                              : r->gen->live_bytes;
    default:
        low = strtoull(r->at, (char **)&r->at, 10);
        return low;
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

/* The braces of a statement, `count` times. */
static void run_braces(struct reader *r, uint64_t count, uint64_t *counter)
{
    take_character(r, '{');
    const char *begin = r->at;
    for (uint64_t i = 0; i < count && !r->gen->has_failed; i++) {
        *counter = i;
        r->at = begin;
        run_statements(r);
    }
    r->at = begin;
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
        flw_gen_use(r->gen, flw_addressmap_find(&r->gen->held, name.key), stream);
        return;
    case '<':
        hold(r, name.key, flw_addressmap_remove(&r->gen->held, read_name(r, WORD_LETTERS).key));
        return;
    case '+': {
        uint32_t block = flw_gen_take_quick(r->gen, read_sum(r), 0);
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
    hold(r, name.key, flw_gen_take(r->gen, read_sum(r), stream));
}

/* The word at the reader, up to a space or a brace. */
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
        flw_gen_give(r->gen, flw_addressmap_remove(&r->gen->held, read_name(r, WORD_LETTERS).key));
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
    case '<':
    case '>':
        once = r->at[-1] == '<' ? FLW_TRACE_PHASE_BEGIN : FLW_TRACE_PHASE_END;
        read_word(r, word);
        flw_gen_mark(r->gen, (enum flw_trace_op)once, word);
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
