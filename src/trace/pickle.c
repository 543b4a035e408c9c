/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pickle machine: stack, marks, memo, opcodes.
 * Does not: know PyTorch; keep strings, floats, tuples or frames.
 *
 * INVARIANTS
 *   1. marks rise, and none is above the stack.
 *   2. memo, stack and harvest hold at most one entry a byte read.
 *   3. A dict keeps at most FLW_PICKLE_WORDS_MAX pairs, so that looking one up is bounded.
 */
#include "trace/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/array.h"

#define STACK_MAX       (1u << 24)
#define MARKS_MAX       256 /* nesting; snapshots reach 5 */
#define INTEGER_BYTES   9   /* 64 bits and a sign */
#define PROTOCOL_LOWEST 2
#define PROTOCOL_NEWEST 5

struct machine {
    struct flw_input *input;
    struct flw_harvest *kept;
    const struct flw_pickle_vocabulary *vocabulary;
    uint8_t word_bytes[FLW_PICKLE_WORDS_MAX];
    struct flw_pickle_value *stack;
    size_t depth, stack_room;
    struct flw_pickle_value *memo;
    size_t memo_room;
    uint64_t memo_next; /* entries MEMOIZE has numbered */
    size_t marks[MARKS_MAX];
    size_t mark_count;
    uint64_t frame_end;
    uint64_t opcode_offset;
    const char *opcode_name;
    struct flw_pickle_value root; /* once stopped */
    bool stopped;
};

static const struct flw_pickle_value absent = {0, FLW_PICKLE_ABSENT};

/* A memo slot that nothing was put in. */
#define KIND_UNSET UINT32_MAX

static bool fail(struct machine *m, const char *what)
{
    return flw_input_fail(m->input, m->opcode_offset, "%s: %s", m->opcode_name, what);
}

static bool fail_memory(struct machine *m)
{
    return flw_input_fail(m->input, m->opcode_offset, "no memory to read on");
}

/* The next `count` bytes, at most FLW_INPUT_FILL_BYTES, or NULL. */
static const unsigned char *take(struct machine *m, size_t count)
{
    struct flw_input *input = m->input;
    if (FLW_UNLIKELY((size_t)(input->end - input->at) < count) && !flw_input_fill(input, count)) {
        flw_input_fail_short(input, m->opcode_name);
        return NULL;
    }
    const unsigned char *bytes = input->at;
    input->at += count;
    return bytes;
}

static uint64_t little_endian(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

/* An argument of `count` bytes, at most 8. */
static bool take_number(struct machine *m, size_t count, uint64_t *out)
{
    const unsigned char *bytes = take(m, count);
    *out = bytes != NULL ? little_endian(bytes, count) : 0;
    return bytes != NULL;
}

/* ---- stack ------------------------------------------------------------------------------------
 */

static bool push(struct machine *m, struct flw_pickle_value value)
{
    if (FLW_UNLIKELY(m->depth == m->stack_room)) {
        if (m->depth >= STACK_MAX) {
            return fail(m, "the stack is deeper than any snapshot's");
        }
        void *stack = flw_array_reserve(m->stack, m->depth, &m->stack_room, sizeof(*m->stack));
        if (stack == NULL) {
            return fail_memory(m);
        }
        m->stack = stack;
    }
    m->stack[m->depth++] = value;
    return true;
}

static size_t floor_of_stack(const struct machine *m)
{
    return m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
}

static bool need(struct machine *m, size_t count)
{
    if (FLW_UNLIKELY(m->depth - floor_of_stack(m) < count)) {
        return fail(m, "the stack holds too little");
    }
    return true;
}

/* Where the items above the topmost mark begin; the mark is gone then. */
static bool pop_mark(struct machine *m, size_t *out_first)
{
    *out_first = 0;
    if (FLW_UNLIKELY(m->mark_count == 0)) {
        return fail(m, "there is no mark");
    }
    *out_first = m->marks[--m->mark_count];
    return true;
}

/* The stack's items from `first` on go into the `kind` of container that lies below them. */
static bool extend_below(struct machine *m, size_t first, uint32_t kind)
{
    if (first <= floor_of_stack(m)) {
        return fail(m, "the stack holds too little");
    }
    struct flw_pickle_value container = m->stack[first - 1];
    if (container.kind != kind) {
        return fail(m, kind == FLW_PICKLE_LIST ? "what it extends is not a list"
                                               : "what it extends is not a dict");
    }
    if (kind == FLW_PICKLE_DICT && (m->depth - first) % 2 != 0) {
        return fail(m, "a key has no value");
    }
    if (!flw_harvest_extend(m->kept, container, &m->stack[first], m->depth - first)) {
        return fail_memory(m);
    }
    m->depth = first;
    if (kind == FLW_PICKLE_DICT && flw_harvest_count(m->kept, container) > FLW_PICKLE_WORDS_MAX) {
        return fail(m, "the dict repeats its keys");
    }
    return true;
}

/* ---- opcodes ----------------------------------------------------------------------------------
 */

static bool run_proto(struct machine *m)
{
    uint64_t version;
    if (!take_number(m, 1, &version)) {
        return false;
    }
    if (m->opcode_offset != 0 || version < PROTOCOL_LOWEST || version > PROTOCOL_NEWEST) {
        return fail(m, "only protocols 2 to 5, named at the start, are read");
    }
    return true;
}

static bool run_frame(struct machine *m)
{
    uint64_t bytes;
    if (!take_number(m, 8, &bytes)) {
        return false;
    }
    uint64_t offset = flw_input_offset(m->input);
    if (offset < m->frame_end) {
        return fail(m, "a frame begins inside another");
    }
    uint64_t held = (uint64_t)(m->input->end - m->input->at);
    if (bytes > FLW_INPUT_MAX_BYTES || (m->input->ended && bytes > held)) {
        return fail(m, "the frame claims more bytes than the file has");
    }
    m->frame_end = offset + bytes;
    return true;
}

static bool run_stop(struct machine *m)
{
    if (m->mark_count != 0) {
        return fail(m, "a mark is still open");
    }
    if (!need(m, 1)) {
        return false;
    }
    m->root = m->stack[m->depth - 1];
    m->stopped = true;
    return true;
}

static bool run_mark(struct machine *m)
{
    if (m->mark_count == MARKS_MAX) {
        return fail(m, "nested deeper than any snapshot");
    }
    m->marks[m->mark_count++] = m->depth;
    return true;
}

static bool run_pop(struct machine *m)
{
    if (m->mark_count > 0 && floor_of_stack(m) == m->depth) {
        m->mark_count--;
        return true;
    }
    if (!need(m, 1)) {
        return false;
    }
    m->depth--;
    return true;
}

static bool push_container(struct machine *m, enum flw_pickle_kind kind)
{
    struct flw_pickle_value value;
    return flw_harvest_add_node(m->kept, kind, m->opcode_offset, &value) ? push(m, value)
                                                                         : fail_memory(m);
}

static bool run_empty_dict(struct machine *m)
{
    return push_container(m, FLW_PICKLE_DICT);
}

static bool run_empty_list(struct machine *m)
{
    return push_container(m, FLW_PICKLE_LIST);
}

static bool run_setitem(struct machine *m)
{
    return need(m, 3) && extend_below(m, m->depth - 2, FLW_PICKLE_DICT);
}

static bool run_append(struct machine *m)
{
    return need(m, 2) && extend_below(m, m->depth - 1, FLW_PICKLE_LIST);
}

static bool run_setitems(struct machine *m)
{
    size_t first = 0;
    return pop_mark(m, &first) && extend_below(m, first, FLW_PICKLE_DICT);
}

static bool run_appends(struct machine *m)
{
    size_t first = 0;
    return pop_mark(m, &first) && extend_below(m, first, FLW_PICKLE_LIST);
}

static bool replace_top(struct machine *m, size_t count)
{
    if (!need(m, count)) {
        return false;
    }
    m->depth -= count;
    return push(m, absent);
}

static bool run_absent(struct machine *m)
{
    return push(m, absent);
}

static bool run_tuple1(struct machine *m)
{
    return replace_top(m, 1);
}

static bool run_tuple2(struct machine *m)
{
    return replace_top(m, 2);
}

static bool run_tuple3(struct machine *m)
{
    return replace_top(m, 3);
}

static bool run_tuple(struct machine *m)
{
    size_t first = 0;
    if (!pop_mark(m, &first)) {
        return false;
    }
    m->depth = first;
    return push(m, absent);
}

static bool run_true(struct machine *m)
{
    return push(m, (struct flw_pickle_value){1, FLW_PICKLE_BOOL});
}

static bool run_false(struct machine *m)
{
    return push(m, (struct flw_pickle_value){0, FLW_PICKLE_BOOL});
}

static bool push_unsigned(struct machine *m, size_t count)
{
    struct flw_pickle_value value = {0, FLW_PICKLE_UNSIGNED};
    return take_number(m, count, &value.bits) && push(m, value);
}

static bool run_binint1(struct machine *m)
{
    return push_unsigned(m, 1);
}

static bool run_binint2(struct machine *m)
{
    return push_unsigned(m, 2);
}

static bool run_binint(struct machine *m)
{
    uint64_t raw;
    if (!take_number(m, 4, &raw)) {
        return false;
    }
    if (raw >> 31 != 0) {
        return push(m, (struct flw_pickle_value){raw | ~UINT64_C(0xFFFFFFFF), FLW_PICKLE_NEGATIVE});
    }
    return push(m, (struct flw_pickle_value){raw, FLW_PICKLE_UNSIGNED});
}

/* Two's complement of `count` bytes. */
static bool push_long(struct machine *m, uint64_t count)
{
    if (count > INTEGER_BYTES) {
        return fail(m, "the integer has more than 64 bits");
    }
    const unsigned char *bytes = take(m, (size_t)count);
    if (bytes == NULL) {
        return false;
    }
    size_t low = count < 8 ? (size_t)count : 8;
    uint64_t value = little_endian(bytes, low);
    bool is_negative = count > 0 && bytes[count - 1] >> 7 != 0;
    if (count == INTEGER_BYTES && bytes[8] != 0 && (bytes[8] != 0xFF || value >> 63 == 0)) {
        return fail(m, "the integer has more than 64 bits");
    }
    if (!is_negative) {
        return push(m, (struct flw_pickle_value){value, FLW_PICKLE_UNSIGNED});
    }
    if (low < 8) {
        value |= ~UINT64_C(0) << (8 * low);
    }
    return push(m, (struct flw_pickle_value){value, FLW_PICKLE_NEGATIVE});
}

static bool run_long1(struct machine *m)
{
    uint64_t count;
    return take_number(m, 1, &count) && push_long(m, count);
}

static bool run_long4(struct machine *m)
{
    uint64_t count;
    return take_number(m, 4, &count) && push_long(m, count);
}

static bool run_binfloat(struct machine *m)
{
    return take(m, 8) != NULL && push(m, absent);
}

static uint32_t word_of(const struct machine *m, const unsigned char *bytes, size_t count)
{
    for (uint32_t i = 0; i < m->vocabulary->count; i++) {
        if (m->word_bytes[i] == count && memcmp(m->vocabulary->words[i], bytes, count) == 0) {
            return i;
        }
    }
    return FLW_PICKLE_NO_WORD;
}

static bool skip_bytes(struct machine *m, uint64_t count)
{
    struct flw_input *input = m->input;
    if ((input->ended && count > (uint64_t)(input->end - input->at)) ||
        count > FLW_INPUT_MAX_BYTES) {
        return fail(m, "claims more bytes than the file has");
    }
    if (!flw_input_skip(input, count)) {
        return flw_input_fail_short(input, m->opcode_name);
    }
    return true;
}

static bool push_string(struct machine *m, size_t length_bytes)
{
    uint64_t count;
    struct flw_pickle_value word = {FLW_PICKLE_NO_WORD, FLW_PICKLE_WORD};
    if (!take_number(m, length_bytes, &count)) {
        return false;
    }
    if (count > FLW_PICKLE_WORD_BYTES) {
        return skip_bytes(m, count) && push(m, word);
    }
    const unsigned char *bytes = take(m, (size_t)count);
    if (bytes == NULL) {
        return false;
    }
    word.bits = word_of(m, bytes, (size_t)count);
    return push(m, word);
}

static bool run_short_binunicode(struct machine *m)
{
    return push_string(m, 1);
}

static bool run_binunicode(struct machine *m)
{
    return push_string(m, 4);
}

static bool run_binunicode8(struct machine *m)
{
    return push_string(m, 8);
}

static bool push_bytes(struct machine *m, size_t length_bytes)
{
    uint64_t count;
    return take_number(m, length_bytes, &count) && skip_bytes(m, count) && push(m, absent);
}

static bool run_short_binbytes(struct machine *m)
{
    return push_bytes(m, 1);
}

static bool run_binbytes(struct machine *m)
{
    return push_bytes(m, 4);
}

static bool put(struct machine *m, uint64_t index)
{
    if (!need(m, 1)) {
        return false;
    }
    if (index >= m->opcode_offset) {
        return fail(m, "the memo index is larger than the bytes read");
    }
    while (index >= m->memo_room) {
        size_t old_room = m->memo_room;
        void *memo = flw_array_reserve(m->memo, m->memo_room, &m->memo_room, sizeof(*m->memo));
        if (memo == NULL) {
            return fail_memory(m);
        }
        m->memo = memo;
        for (size_t i = old_room; i < m->memo_room; i++) {
            m->memo[i] = (struct flw_pickle_value){0, KIND_UNSET};
        }
    }
    m->memo[index] = m->stack[m->depth - 1];
    return true;
}

static bool get(struct machine *m, size_t index_bytes)
{
    uint64_t index;
    if (!take_number(m, index_bytes, &index)) {
        return false;
    }
    if (FLW_UNLIKELY(index >= m->memo_room || m->memo[index].kind == KIND_UNSET)) {
        return fail(m, "nothing was put at that memo index");
    }
    return push(m, m->memo[index]);
}

static bool run_memoize(struct machine *m)
{
    return put(m, m->memo_next++);
}

static bool run_binput(struct machine *m)
{
    uint64_t index;
    return take_number(m, 1, &index) && put(m, index);
}

static bool run_long_binput(struct machine *m)
{
    uint64_t index;
    return take_number(m, 4, &index) && put(m, index);
}

static bool run_binget(struct machine *m)
{
    return get(m, 1);
}

static bool run_long_binget(struct machine *m)
{
    return get(m, 4);
}

struct opcode {
    const char *name;
    bool (*run)(struct machine *m); /* NULL: refused */
};

static const struct opcode opcodes[256] = {
    [0x80] = {"PROTO", run_proto},
    [0x95] = {"FRAME", run_frame},
    ['.'] = {"STOP", run_stop},
    ['('] = {"MARK", run_mark},
    ['0'] = {"POP", run_pop},
    ['N'] = {"NONE", run_absent},
    [0x88] = {"NEWTRUE", run_true},
    [0x89] = {"NEWFALSE", run_false},
    ['J'] = {"BININT", run_binint},
    ['K'] = {"BININT1", run_binint1},
    ['M'] = {"BININT2", run_binint2},
    [0x8A] = {"LONG1", run_long1},
    [0x8B] = {"LONG4", run_long4},
    ['G'] = {"BINFLOAT", run_binfloat},
    [0x8C] = {"SHORT_BINUNICODE", run_short_binunicode},
    ['X'] = {"BINUNICODE", run_binunicode},
    [0x8D] = {"BINUNICODE8", run_binunicode8},
    ['B'] = {"BINBYTES", run_binbytes},
    ['C'] = {"SHORT_BINBYTES", run_short_binbytes},
    ['}'] = {"EMPTY_DICT", run_empty_dict},
    [']'] = {"EMPTY_LIST", run_empty_list},
    [')'] = {"EMPTY_TUPLE", run_absent},
    [0x85] = {"TUPLE1", run_tuple1},
    [0x86] = {"TUPLE2", run_tuple2},
    [0x87] = {"TUPLE3", run_tuple3},
    ['t'] = {"TUPLE", run_tuple},
    ['s'] = {"SETITEM", run_setitem},
    ['u'] = {"SETITEMS", run_setitems},
    ['a'] = {"APPEND", run_append},
    ['e'] = {"APPENDS", run_appends},
    [0x94] = {"MEMOIZE", run_memoize},
    ['q'] = {"BINPUT", run_binput},
    ['r'] = {"LONG_BINPUT", run_long_binput},
    ['h'] = {"BINGET", run_binget},
    ['j'] = {"LONG_BINGET", run_long_binget},

    /* These import, call, or make objects. */
    ['c'] = {"GLOBAL", NULL},
    [0x93] = {"STACK_GLOBAL", NULL},
    ['i'] = {"INST", NULL},
    ['o'] = {"OBJ", NULL},
    [0x81] = {"NEWOBJ", NULL},
    [0x92] = {"NEWOBJ_EX", NULL},
    ['R'] = {"REDUCE", NULL},
    ['b'] = {"BUILD", NULL},
    [0x82] = {"EXT1", NULL},
    [0x83] = {"EXT2", NULL},
    [0x84] = {"EXT4", NULL},
    ['P'] = {"PERSID", NULL},
    ['Q'] = {"BINPERSID", NULL},
    [0x97] = {"NEXT_BUFFER", NULL},
    [0x98] = {"READONLY_BUFFER", NULL},

    /* No snapshot has these. */
    ['1'] = {"POP_MARK", NULL},
    ['2'] = {"DUP", NULL},
    ['F'] = {"FLOAT", NULL},
    ['I'] = {"INT", NULL},
    ['L'] = {"LONG", NULL},
    ['S'] = {"STRING", NULL},
    ['T'] = {"BINSTRING", NULL},
    ['U'] = {"SHORT_BINSTRING", NULL},
    ['V'] = {"UNICODE", NULL},
    ['d'] = {"DICT", NULL},
    ['l'] = {"LIST", NULL},
    ['g'] = {"GET", NULL},
    ['p'] = {"PUT", NULL},
    [0x8E] = {"BINBYTES8", NULL},
    [0x8F] = {"EMPTY_SET", NULL},
    [0x90] = {"ADDITEMS", NULL},
    [0x91] = {"FROZENSET", NULL},
    [0x96] = {"BYTEARRAY8", NULL},
};

static bool refuse(struct machine *m, unsigned char code)
{
    if (opcodes[code].name == NULL) {
        return flw_input_fail(m->input, m->opcode_offset, "0x%02X is not a pickle opcode", code);
    }
    return flw_input_fail(m->input, m->opcode_offset,
                          "the opcode %s is refused: a snapshot holds data only",
                          opcodes[code].name);
}

static bool step(struct machine *m)
{
    struct flw_input *input = m->input;
    m->opcode_offset = flw_input_offset(input);
    if (FLW_UNLIKELY(input->at == input->end) && !flw_input_fill(input, 1)) {
        return flw_input_fail_short(input, "the pickle, before its STOP");
    }
    const struct opcode *opcode = &opcodes[*input->at];
    if (FLW_UNLIKELY(opcode->run == NULL)) {
        return refuse(m, *input->at);
    }
    input->at++;
    m->opcode_name = opcode->name;
    return opcode->run(m);
}

static bool run(struct machine *m)
{
    if (!flw_input_fill(m->input, 1) || *m->input->at != 0x80) {
        return flw_input_fail(m->input, 0, "not a pickle of protocol 2 or newer");
    }
    while (!m->stopped) {
        if (!step(m)) {
            return false;
        }
    }
    if (flw_input_offset(m->input) < m->frame_end) {
        return fail(m, "the last frame claims more bytes than there are");
    }
    return flw_input_drain(m->input);
}

bool flw_pickle_read(struct flw_input *input, const struct flw_pickle_vocabulary *vocabulary,
                     struct flw_harvest **out_harvest, struct flw_pickle_value *out_root)
{
    struct machine m = {.input = input, .vocabulary = vocabulary, .opcode_name = "the pickle"};
    *out_harvest = NULL;
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        m.word_bytes[i] = (uint8_t)strlen(vocabulary->words[i]);
    }
    m.kept = flw_harvest_create();
    bool is_read = m.kept != NULL ? run(&m) : fail_memory(&m);
    *out_root = is_read ? m.root : absent;
    free(m.stack);
    free(m.memo);
    if (!is_read) {
        flw_harvest_destroy(m.kept);
        return false;
    }
    *out_harvest = m.kept;
    return true;
}
