/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pickle machine's opcodes. Stack: pickle_inl.h; memo: pickle_memo_inl.h.
 * Does not: depend on PyTorch; keep floats, or tuples except pairs of numbers.
 *
 * INVARIANTS
 *   1. memo, stack and harvest hold at most one entry per byte read.
 *   2. A dict keeps at most FLW_PICKLE_WORDS_MAX pairs, so that looking one up is bounded.
 */
#include "trace/formats/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/formats/pickle_inl.h"
#include "trace/formats/pickle_memo_inl.h"
#include "trace/trace/largearray.h"

#define INTEGER_BYTES   9 /* 64 bits and a sign */
#define PROTOCOL_LOWEST 2
#define PROTOCOL_NEWEST 5

static const struct flw_pickle_value absent = {0, FLW_PICKLE_ABSENT};

/* Move the stack's items from `first` on into the container of `kind` below them. */
static bool extend_below(struct flw_machine *m, size_t first, uint32_t kind)
{
    if (first <= flw_machine_floor(m)) {
        return flw_machine_fail(m, "the stack holds too little");
    }
    struct flw_pickle_value container = m->stack[first - 1];
    if (container.kind != kind) {
        return flw_machine_fail(m, kind == FLW_PICKLE_LIST ? "what it extends is not a list"
                                                           : "what it extends is not a dict");
    }
    if (kind == FLW_PICKLE_DICT && (m->depth - first) % 2 != 0) {
        return flw_machine_fail(m, "a key has no value");
    }
    if (!flw_harvest_extend(m->kept, container, &m->stack[first], m->depth - first)) {
        return flw_machine_fail_memory(m);
    }
    m->depth = first;
    if (kind == FLW_PICKLE_DICT && flw_harvest_count(m->kept, container) > FLW_PICKLE_WORDS_MAX) {
        return flw_machine_fail(m, "the dict repeats its keys");
    }
    return true;
}

/* ---- opcodes ---- */

static bool run_proto(struct flw_machine *m)
{
    uint64_t version;
    if (!flw_machine_take_number(m, 1, &version)) {
        return false;
    }
    if (m->opcode_offset != 0 || version < PROTOCOL_LOWEST || version > PROTOCOL_NEWEST) {
        return flw_machine_fail(m, "only protocols 2 to 5, named at the start, are read");
    }
    return true;
}

static bool run_frame(struct flw_machine *m)
{
    uint64_t bytes;
    if (!flw_machine_take_number(m, 8, &bytes)) {
        return false;
    }
    uint64_t offset = flw_input_offset(m->input);
    if (offset < m->frame_end) {
        return flw_machine_fail(m, "a frame begins inside another");
    }
    uint64_t held = (uint64_t)(m->input->end - m->input->at);
    if (bytes > FLW_INPUT_MAX_BYTES || (m->input->ended && bytes > held)) {
        return flw_machine_fail(m, "the frame claims more bytes than the file has");
    }
    m->frame_end = offset + bytes;
    return true;
}

static bool run_stop(struct flw_machine *m)
{
    if (m->mark_count != 0) {
        return flw_machine_fail(m, "a mark is still open");
    }
    if (!flw_machine_need(m, 1)) {
        return false;
    }
    m->root = m->stack[m->depth - 1];
    m->stopped = true;
    return true;
}

static bool run_mark(struct flw_machine *m)
{
    if (m->mark_count == FLW_MACHINE_MARKS_MAX) {
        return flw_machine_fail(m, "nested deeper than any snapshot");
    }
    m->marks[m->mark_count++] = m->depth;
    return true;
}

static bool run_pop(struct flw_machine *m)
{
    if (m->mark_count > 0 && flw_machine_floor(m) == m->depth) {
        m->mark_count--;
        return true;
    }
    if (!flw_machine_need(m, 1)) {
        return false;
    }
    m->depth--;
    return true;
}

static bool run_empty(struct flw_machine *m)
{
    struct flw_pickle_value value;
    return flw_harvest_add_node(m->kept, (enum flw_pickle_kind)m->operand, m->opcode_offset, &value)
               ? flw_machine_push(m, value)
               : flw_machine_fail_memory(m);
}

static bool run_extend_by_one(struct flw_machine *m)
{
    size_t count = m->operand == FLW_PICKLE_DICT ? 2 : 1;
    return flw_machine_need(m, 1 + count) && extend_below(m, m->depth - count, m->operand);
}

static bool run_extend(struct flw_machine *m)
{
    size_t first = 0;
    return flw_machine_pop_mark(m, &first) && extend_below(m, first, m->operand);
}

static bool run_other_tuple(struct flw_machine *m)
{
    if (!flw_machine_need(m, m->operand)) {
        return false;
    }
    m->depth -= m->operand;
    return flw_machine_push(m, absent);
}

static bool run_absent(struct flw_machine *m)
{
    return flw_machine_push(m, absent);
}

/* Make the topmost two items a tuple. */
static bool make_pair(struct flw_machine *m)
{
    const struct flw_pickle_value *items = &m->stack[m->depth - 2];
    struct flw_pickle_value pair = absent;
    if (items[0].kind == FLW_PICKLE_UNSIGNED && items[1].kind == FLW_PICKLE_UNSIGNED) {
        struct flw_intern_pair numbers = {items[0].bits, items[1].bits};
        pair.kind = FLW_PICKLE_PAIR;
        if (!flw_intern_add_pair(flw_harvest_intern(m->kept), numbers, &pair.bits)) {
            return flw_machine_fail_memory(m);
        }
    }
    m->depth -= 2;
    return flw_machine_push(m, pair);
}

static bool run_tuple2(struct flw_machine *m)
{
    return flw_machine_need(m, 2) && make_pair(m);
}

static bool run_tuple(struct flw_machine *m)
{
    size_t first = 0;
    if (!flw_machine_pop_mark(m, &first)) {
        return false;
    }
    if (m->depth - first == 2) {
        return make_pair(m);
    }
    m->depth = first;
    return flw_machine_push(m, absent);
}

static bool run_bool(struct flw_machine *m)
{
    return flw_machine_push(m, (struct flw_pickle_value){m->operand, FLW_PICKLE_BOOL});
}

static bool run_unsigned(struct flw_machine *m)
{
    struct flw_pickle_value value = {0, FLW_PICKLE_UNSIGNED};
    return flw_machine_take_number(m, m->operand, &value.bits) && flw_machine_push(m, value);
}

static bool run_binint(struct flw_machine *m)
{
    uint64_t raw;
    if (!flw_machine_take_number(m, 4, &raw)) {
        return false;
    }
    if (raw >> 31 != 0) {
        return flw_machine_push(
            m, (struct flw_pickle_value){raw | ~UINT64_C(0xFFFFFFFF), FLW_PICKLE_NEGATIVE});
    }
    return flw_machine_push(m, (struct flw_pickle_value){raw, FLW_PICKLE_UNSIGNED});
}

/* Read a two's complement number after the length. */
static bool run_long(struct flw_machine *m)
{
    uint64_t count;
    if (!flw_machine_take_number(m, m->operand, &count)) {
        return false;
    }
    if (count > INTEGER_BYTES) {
        return flw_machine_fail(m, "the integer has more than 64 bits");
    }
    const unsigned char *bytes = flw_machine_take(m, (size_t)count);
    if (bytes == NULL) {
        return false;
    }
    size_t low = count < 8 ? (size_t)count : 8;
    uint64_t value = flw_machine_little_endian(bytes, low);
    bool is_negative = count > 0 && bytes[count - 1] >> 7 != 0;
    if (count == INTEGER_BYTES && bytes[8] != 0 && (bytes[8] != 0xFF || value >> 63 == 0)) {
        return flw_machine_fail(m, "the integer has more than 64 bits");
    }
    if (!is_negative) {
        return flw_machine_push(m, (struct flw_pickle_value){value, FLW_PICKLE_UNSIGNED});
    }
    if (low < 8) {
        value |= ~UINT64_C(0) << (8 * low);
    }
    return flw_machine_push(m, (struct flw_pickle_value){value, FLW_PICKLE_NEGATIVE});
}

static bool run_binfloat(struct flw_machine *m)
{
    return flw_machine_take(m, 8) != NULL && flw_machine_push(m, absent);
}

static bool push_text(struct flw_machine *m, const unsigned char *bytes, size_t count)
{
    struct flw_pickle_value value = {0, FLW_PICKLE_WORD};
    for (uint32_t i = 0; i < m->vocabulary->count; i++) {
        if (m->word_bytes[i] == count && memcmp(m->vocabulary->words[i], bytes, count) == 0) {
            value.bits = i;
            return flw_machine_push(m, value);
        }
    }
    value.kind = FLW_PICKLE_TEXT;
    return flw_intern_add_text(flw_harvest_intern(m->kept), bytes, count, &value.bits)
               ? flw_machine_push(m, value)
               : flw_machine_fail_memory(m);
}

size_t flw_pickle_cut_text(const void *text, size_t count, size_t most)
{
    const unsigned char *bytes = text;
    if (count > most) {
        count = most;
        while (count > 0 && (bytes[count] & 0xC0) == 0x80) {
            count--;
        }
    }
    return count;
}

static bool check_length(struct flw_machine *m, uint64_t count)
{
    const struct flw_input *input = m->input;
    bool is_too_long =
        (input->ended && count > (uint64_t)(input->end - input->at)) || count > FLW_INPUT_MAX_BYTES;
    return !is_too_long || flw_machine_fail(m, "claims more bytes than the file has");
}

static bool skip_bytes(struct flw_machine *m, uint64_t count)
{
    struct flw_input *input = m->input;
    if (!check_length(m, count)) {
        return false;
    }
    if (!flw_input_skip(input, count)) {
        return flw_input_fail_short(input, m->opcode_name);
    }
    return true;
}

static bool run_text(struct flw_machine *m)
{
    uint64_t count;
    if (!flw_machine_take_number(m, m->operand, &count) || !check_length(m, count)) {
        return false;
    }
    if (count <= FLW_PICKLE_TEXT_BYTES) {
        const unsigned char *bytes = flw_machine_take(m, (size_t)count);
        return bytes != NULL && push_text(m, bytes, (size_t)count);
    }
    const unsigned char *bytes = flw_machine_take(m, FLW_PICKLE_TEXT_BYTES + 1);
    return bytes != NULL &&
           push_text(m, bytes,
                     flw_pickle_cut_text(bytes, (size_t)FLW_PICKLE_TEXT_BYTES + 1,
                                         FLW_PICKLE_TEXT_BYTES)) &&
           skip_bytes(m, count - FLW_PICKLE_TEXT_BYTES - 1);
}

static bool run_bytes(struct flw_machine *m)
{
    uint64_t count;
    return flw_machine_take_number(m, m->operand, &count) && skip_bytes(m, count) &&
           flw_machine_push(m, absent);
}

static bool run_memoize(struct flw_machine *m)
{
    return flw_memo_put(m, m->memo_next++);
}

static bool run_put(struct flw_machine *m)
{
    uint64_t index;
    return flw_machine_take_number(m, m->operand, &index) && flw_memo_put(m, index);
}

struct opcode {
    const char *name;
    bool (*run)(struct flw_machine *m); /* NULL: refused */
    uint8_t operand; /* size of the argument; or the kind, the count, the value */
};

static const struct opcode opcodes[256] = {
    [0x80] = {"PROTO", run_proto, 0},
    [0x95] = {"FRAME", run_frame, 0},
    ['.'] = {"STOP", run_stop, 0},
    ['('] = {"MARK", run_mark, 0},
    ['0'] = {"POP", run_pop, 0},
    ['N'] = {"NONE", run_absent, 0},
    [0x88] = {"NEWTRUE", run_bool, 1},
    [0x89] = {"NEWFALSE", run_bool, 0},
    ['J'] = {"BININT", run_binint, 0},
    ['K'] = {"BININT1", run_unsigned, 1},
    ['M'] = {"BININT2", run_unsigned, 2},
    [0x8A] = {"LONG1", run_long, 1},
    [0x8B] = {"LONG4", run_long, 4},
    ['G'] = {"BINFLOAT", run_binfloat, 0},
    [0x8C] = {"SHORT_BINUNICODE", run_text, 1},
    ['X'] = {"BINUNICODE", run_text, 4},
    [0x8D] = {"BINUNICODE8", run_text, 8},
    ['B'] = {"BINBYTES", run_bytes, 4},
    ['C'] = {"SHORT_BINBYTES", run_bytes, 1},
    ['}'] = {"EMPTY_DICT", run_empty, FLW_PICKLE_DICT},
    [']'] = {"EMPTY_LIST", run_empty, FLW_PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", run_absent, 0},
    [0x85] = {"TUPLE1", run_other_tuple, 1},
    [0x86] = {"TUPLE2", run_tuple2, 0},
    [0x87] = {"TUPLE3", run_other_tuple, 3},
    ['t'] = {"TUPLE", run_tuple, 0},
    ['s'] = {"SETITEM", run_extend_by_one, FLW_PICKLE_DICT},
    ['u'] = {"SETITEMS", run_extend, FLW_PICKLE_DICT},
    ['a'] = {"APPEND", run_extend_by_one, FLW_PICKLE_LIST},
    ['e'] = {"APPENDS", run_extend, FLW_PICKLE_LIST},
    [0x94] = {"MEMOIZE", run_memoize, 0},
    ['q'] = {"BINPUT", run_put, 1},
    ['r'] = {"LONG_BINPUT", run_put, 4},
    ['h'] = {"BINGET", flw_memo_get, 1},
    ['j'] = {"LONG_BINGET", flw_memo_get, 4},

    /* These import, call, or make objects. */
    ['c'] = {"GLOBAL", NULL, 0},
    [0x93] = {"STACK_GLOBAL", NULL, 0},
    ['i'] = {"INST", NULL, 0},
    ['o'] = {"OBJ", NULL, 0},
    [0x81] = {"NEWOBJ", NULL, 0},
    [0x92] = {"NEWOBJ_EX", NULL, 0},
    ['R'] = {"REDUCE", NULL, 0},
    ['b'] = {"BUILD", NULL, 0},
    [0x82] = {"EXT1", NULL, 0},
    [0x83] = {"EXT2", NULL, 0},
    [0x84] = {"EXT4", NULL, 0},
    ['P'] = {"PERSID", NULL, 0},
    ['Q'] = {"BINPERSID", NULL, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},

    /* No snapshot has these. */
    ['1'] = {"POP_MARK", NULL, 0},
    ['2'] = {"DUP", NULL, 0},
    ['F'] = {"FLOAT", NULL, 0},
    ['I'] = {"INT", NULL, 0},
    ['L'] = {"LONG", NULL, 0},
    ['S'] = {"STRING", NULL, 0},
    ['T'] = {"BINSTRING", NULL, 0},
    ['U'] = {"SHORT_BINSTRING", NULL, 0},
    ['V'] = {"UNICODE", NULL, 0},
    ['d'] = {"DICT", NULL, 0},
    ['l'] = {"LIST", NULL, 0},
    ['g'] = {"GET", NULL, 0},
    ['p'] = {"PUT", NULL, 0},
    [0x8E] = {"BINBYTES8", NULL, 0},
    [0x8F] = {"EMPTY_SET", NULL, 0},
    [0x90] = {"ADDITEMS", NULL, 0},
    [0x91] = {"FROZENSET", NULL, 0},
    [0x96] = {"BYTEARRAY8", NULL, 0},
};

static bool refuse(struct flw_machine *m, unsigned char code)
{
    if (opcodes[code].name == NULL) {
        return flw_input_fail(m->input, m->opcode_offset, "0x%02X is not a pickle opcode", code);
    }
    return flw_input_fail(m->input, m->opcode_offset,
                          "the opcode %s is refused: a snapshot holds data only",
                          opcodes[code].name);
}

static bool step(struct flw_machine *m)
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
    m->operand = opcode->operand;
    return opcode->run(m);
}

static bool run(struct flw_machine *m)
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
        return flw_machine_fail(m, "the last frame claims more bytes than there are");
    }
    m->end_offset = flw_input_offset(m->input);
    return flw_input_drain(m->input);
}

bool flw_pickle_read(struct flw_input *input, const struct flw_pickle_vocabulary *vocabulary,
                     struct flw_harvest **out_harvest, struct flw_pickle_value *out_root,
                     uint64_t *out_rest_bytes)
{
    struct flw_machine m = {.input = input, .vocabulary = vocabulary, .opcode_name = "the pickle"};
    *out_harvest = NULL;
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        m.word_bytes[i] = (uint8_t)strlen(vocabulary->words[i]);
    }
    m.kept = flw_harvest_create(vocabulary);
    bool is_read = m.kept != NULL ? run(&m) : flw_machine_fail_memory(&m);
    *out_root = is_read ? m.root : absent;
    *out_rest_bytes = is_read ? flw_input_offset(input) - m.end_offset : 0;
    free(m.stack);
    flw_largearray_free(m.memo, m.memo_room, sizeof(*m.memo));
    if (!is_read) {
        flw_harvest_destroy(m.kept);
        return false;
    }
    *out_harvest = m.kept;
    return true;
}
