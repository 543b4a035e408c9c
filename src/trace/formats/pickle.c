/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pickle machine: its stack, marks, memo and opcodes.
 * Does not: depend on PyTorch; keep floats, or tuples except pairs of numbers.
 *
 * INVARIANT  marks rise, and none is above the stack.
 */
#include "trace/formats/pickle.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "record/array.h"
#include "trace/trace/largearray.h"

#define INTEGER_BYTES   9 /* 64 bits and a sign */
#define PROTOCOL_LOWEST 2
#define PROTOCOL_NEWEST 5
#define STACK_MAX       (1u << 24)
#define MARKS_MAX       256 /* nesting; snapshots reach 5 */
#define MEMO_SHIFT      60  /* of a memo entry: kind + 1 above the bits */

struct machine;

struct opcode {
    const char *name;
    bool (*run)(struct machine *m, uint64_t number); /* NULL: refused */
    uint8_t number_bytes;                            /* of the number after the opcode */
    uint8_t number;                                  /* if there is none */
    uint8_t kind; /* enum flw_pickle_kind, of the value that is pushed or extended */
};

#define ACTION_BYTES(name, text, operation) sizeof(text) - 1,
#define WORD_BYTES(name, text)              sizeof(text) - 1,
static const uint8_t word_bytes[] = {ACTION_LIST(ACTION_BYTES) WORD_LIST(WORD_BYTES)};

struct machine {
    struct flw_input *input;
    struct flw_pickle *kept;
    struct flw_pickle_value *stack;
    size_t depth, stack_room;
    uint64_t *memo; /* 0: empty entry */
    size_t memo_room;
    uint64_t memo_next; /* entries numbered by MEMOIZE */
    size_t marks[MARKS_MAX];
    size_t mark_count;
    uint64_t frame_end;
    uint64_t opcode_offset;
    const struct opcode *opcode;
    bool stopped;
};

static bool fail(struct machine *m, const char *what)
{
    return flw_input_fail(m->input, m->opcode_offset, "%s: %s", m->opcode->name, what);
}

/* Return the next `count` bytes, at most FLW_INPUT_FILL_BYTES, or NULL. */
static inline const unsigned char *take(struct machine *m, size_t count)
{
    struct flw_input *input = m->input;
    if (FLW_UNLIKELY((size_t)(input->end - input->at) < count) && !flw_input_fill(input, count)) {
        flw_input_fail_short(input, m->opcode->name);
        return NULL;
    }
    const unsigned char *bytes = input->at;
    input->at += count;
    return bytes;
}

/* Decode a number of at most 8 bytes. Most are memo indices of one byte or four. */
static inline uint64_t little_endian(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0;
    uint32_t word;
    if (count == 1) {
        return bytes[0];
    }
    if (FLW_LIKELY(count == sizeof(word))) {
        memcpy(&word, bytes, sizeof(word));
        return le32toh(word);
    }
    for (size_t i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static inline bool push(struct machine *m, uint64_t bits, enum flw_pickle_kind kind)
{
    if (FLW_UNLIKELY(m->depth == m->stack_room)) {
        if (m->depth >= STACK_MAX) {
            return fail(m, "the stack is deeper than any snapshot's");
        }
        if (!FLW_ARRAY_FITS(m->stack, m->depth, m->stack_room)) {
            return fail(m, FLW_PICKLE_NO_MEMORY);
        }
    }
    m->stack[m->depth++] = (struct flw_pickle_value){bits, kind};
    return true;
}

static inline size_t floor_of(const struct machine *m)
{
    return m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
}

static inline bool need(struct machine *m, size_t count)
{
    return FLW_LIKELY(m->depth - floor_of(m) >= count) || fail(m, "the stack holds too little");
}

/* Remove the topmost mark and return the number of items above it. */
static inline bool pop_mark(struct machine *m, size_t *out_count)
{
    *out_count = 0;
    if (FLW_UNLIKELY(m->mark_count == 0)) {
        return fail(m, "there is no mark");
    }
    *out_count = m->depth - m->marks[--m->mark_count];
    return true;
}

/* ---- opcodes: each function gets the number after the opcode, or the one in the table ---- */

static bool run_proto(struct machine *m, uint64_t version)
{
    return (m->opcode_offset == 0 && version >= PROTOCOL_LOWEST && version <= PROTOCOL_NEWEST) ||
           fail(m, "only protocols 2 to 5, named at the start, are read");
}

static bool run_frame(struct machine *m, uint64_t bytes)
{
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

static bool run_stop(struct machine *m, uint64_t unused)
{
    (void)unused;
    if (m->mark_count != 0) {
        return fail(m, "a mark is still open");
    }
    m->stopped = need(m, 1);
    return m->stopped;
}

static bool run_mark(struct machine *m, uint64_t unused)
{
    (void)unused;
    if (m->mark_count == MARKS_MAX) {
        return fail(m, "nested deeper than any snapshot");
    }
    m->marks[m->mark_count++] = m->depth;
    return true;
}

static bool run_pop(struct machine *m, uint64_t unused)
{
    (void)unused;
    if (m->mark_count > 0 && floor_of(m) == m->depth) {
        m->mark_count--;
        return true;
    }
    if (!need(m, 1)) {
        return false;
    }
    m->depth--;
    return true;
}

static bool run_push(struct machine *m, uint64_t number)
{
    return push(m, number, (enum flw_pickle_kind)m->opcode->kind);
}

static bool run_absent(struct machine *m, uint64_t unused)
{
    (void)unused;
    return push(m, 0, FLW_PICKLE_ABSENT);
}

static bool run_empty(struct machine *m, uint64_t unused)
{
    struct flw_pickle_value value;
    (void)unused;
    return flw_pickle_add_node(m->kept, m->opcode->kind, m->opcode_offset, &value)
               ? run_push(m, value.bits)
               : fail(m, FLW_PICKLE_NO_MEMORY);
}

/* Move the topmost `count` items into the container below them. */
static bool run_extend_by(struct machine *m, uint64_t count)
{
    bool is_list = m->opcode->kind == FLW_PICKLE_LIST;
    if (!need(m, count + 1)) {
        return false;
    }
    struct flw_pickle_value *items = &m->stack[m->depth - count];
    if (items[-1].kind != m->opcode->kind) {
        return fail(m, is_list ? "the extended object is not a list"
                               : "the extended object is not a dict");
    }
    if (!is_list && count % 2 != 0) {
        return fail(m, "a key has no value");
    }
    const char *problem = flw_pickle_extend(m->kept, items[-1], items, count);
    m->depth -= count;
    return problem == NULL || fail(m, problem);
}

static bool run_extend(struct machine *m, uint64_t unused)
{
    size_t count;
    (void)unused;
    return pop_mark(m, &count) && run_extend_by(m, count);
}

static bool run_tuple_of(struct machine *m, uint64_t count)
{
    if (!need(m, count)) {
        return false;
    }
    m->depth -= count;
    const struct flw_pickle_value *items = &m->stack[m->depth];
    if (count != 2 || items[0].kind != FLW_PICKLE_UNSIGNED ||
        items[1].kind != FLW_PICKLE_UNSIGNED) {
        return run_absent(m, 0);
    }
    struct flw_pickle_pair numbers = {items[0].bits, items[1].bits};
    uint32_t pair;
    return flw_intern_add(&m->kept->pairs, &numbers, sizeof numbers, &pair)
               ? push(m, pair, FLW_PICKLE_PAIR)
               : fail(m, FLW_PICKLE_NO_MEMORY);
}

static bool run_tuple(struct machine *m, uint64_t unused)
{
    size_t count;
    (void)unused;
    return pop_mark(m, &count) && run_tuple_of(m, count);
}

static bool push_signed(struct machine *m, uint64_t value)
{
    return push(m, value, value >> 63 != 0 ? FLW_PICKLE_NEGATIVE : FLW_PICKLE_UNSIGNED);
}

static bool push_int(struct machine *m, uint64_t value)
{
    return push_signed(m, (uint64_t)(int32_t)value);
}

/* Read a two's complement number of `count` bytes. */
static bool run_long(struct machine *m, uint64_t count)
{
    if (count > INTEGER_BYTES) {
        return fail(m, "the integer has more than 64 bits");
    }
    const unsigned char *bytes = take(m, (size_t)count);
    if (bytes == NULL) {
        return false;
    }
    if (count == INTEGER_BYTES) {
        uint64_t value = little_endian(bytes, 8);
        bool is_negative = bytes[8] == 0xFF && value >> 63 != 0;
        return bytes[8] == 0 || is_negative
                   ? push(m, value, is_negative ? FLW_PICKLE_NEGATIVE : FLW_PICKLE_UNSIGNED)
                   : fail(m, "the integer has more than 64 bits");
    }
    unsigned spare = count == 0 ? 0 : 64 - 8 * (unsigned)count;
    return push_signed(
        m, (uint64_t)((int64_t)(little_endian(bytes, (size_t)count) << spare) >> spare));
}

static bool push_text(struct machine *m, const unsigned char *bytes, size_t count)
{
    uint32_t text;
    for (uint32_t i = 0; i < WORD_COUNT; i++) {
        if (word_bytes[i] == count && memcmp(words[i], bytes, count) == 0) {
            return push(m, i, FLW_PICKLE_WORD);
        }
    }
    return flw_intern_add_text(&m->kept->texts, bytes, count, &text)
               ? push(m, text, FLW_PICKLE_TEXT)
               : fail(m, FLW_PICKLE_NO_MEMORY);
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

static bool check_length(struct machine *m, uint64_t count)
{
    const struct flw_input *input = m->input;
    bool is_too_long =
        (input->ended && count > (uint64_t)(input->end - input->at)) || count > FLW_INPUT_MAX_BYTES;
    return !is_too_long || fail(m, "claims more bytes than the file has");
}

static bool skip(struct machine *m, uint64_t count)
{
    return check_length(m, count) &&
           (flw_input_skip(m->input, count) || flw_input_fail_short(m->input, m->opcode->name));
}

static bool run_text(struct machine *m, uint64_t count)
{
    size_t seen = flw_min(count, FLW_PICKLE_TEXT_BYTES + 1);
    const unsigned char *bytes = check_length(m, count) ? take(m, seen) : NULL;
    return bytes != NULL &&
           push_text(m, bytes, flw_pickle_cut_text(bytes, seen, FLW_PICKLE_TEXT_BYTES)) &&
           skip(m, count - seen);
}

static bool run_bytes(struct machine *m, uint64_t count)
{
    return skip(m, count) && run_absent(m, 0);
}

/* Store the topmost value, which stays, at the index. */
static bool run_put(struct machine *m, uint64_t index)
{
    if (!need(m, 1)) {
        return false;
    }
    if (index >= m->opcode_offset) {
        return fail(m, "the memo index is larger than the bytes read");
    }
    struct flw_pickle_value value = m->stack[m->depth - 1];
    if (FLW_UNLIKELY(value.bits >> MEMO_SHIFT != 0)) {
        return fail(m, "a number of this size cannot be in a memo");
    }
    if (!FLW_LARGEARRAY_FITS(m->memo, (size_t)index, m->memo_room)) {
        return fail(m, FLW_PICKLE_NO_MEMORY);
    }
    m->memo[index] = ((uint64_t)value.kind + 1) << MEMO_SHIFT | value.bits;
    return true;
}

static bool run_memoize(struct machine *m, uint64_t unused)
{
    (void)unused;
    return run_put(m, m->memo_next++);
}

static bool run_get(struct machine *m, uint64_t index)
{
    if (FLW_UNLIKELY(index >= m->memo_room || m->memo[index] == 0)) {
        return fail(m, "the memo index is empty");
    }
    uint64_t entry = m->memo[index];
    return push(m, entry & ((UINT64_C(1) << MEMO_SHIFT) - 1),
                (enum flw_pickle_kind)((entry >> MEMO_SHIFT) - 1));
}

static const struct opcode opcodes[256] = {
    [0x80] = {"PROTO", run_proto, 1, 0, 0},
    [0x95] = {"FRAME", run_frame, 8, 0, 0},
    ['.'] = {"STOP", run_stop, 0, 0, 0},
    ['('] = {"MARK", run_mark, 0, 0, 0},
    ['0'] = {"POP", run_pop, 0, 0, 0},
    ['N'] = {"NONE", run_absent, 0, 0, 0},
    [0x88] = {"NEWTRUE", run_push, 0, 1, FLW_PICKLE_BOOL},
    [0x89] = {"NEWFALSE", run_push, 0, 0, FLW_PICKLE_BOOL},
    ['J'] = {"BININT", push_int, 4, 0, 0},
    ['K'] = {"BININT1", run_push, 1, 0, FLW_PICKLE_UNSIGNED},
    ['M'] = {"BININT2", run_push, 2, 0, FLW_PICKLE_UNSIGNED},
    [0x8A] = {"LONG1", run_long, 1, 0, 0},
    [0x8B] = {"LONG4", run_long, 4, 0, 0},
    ['G'] = {"BINFLOAT", run_absent, 8, 0, 0},
    [0x8C] = {"SHORT_BINUNICODE", run_text, 1, 0, 0},
    ['X'] = {"BINUNICODE", run_text, 4, 0, 0},
    [0x8D] = {"BINUNICODE8", run_text, 8, 0, 0},
    ['B'] = {"BINBYTES", run_bytes, 4, 0, 0},
    ['C'] = {"SHORT_BINBYTES", run_bytes, 1, 0, 0},
    ['}'] = {"EMPTY_DICT", run_empty, 0, 0, FLW_PICKLE_DICT},
    [']'] = {"EMPTY_LIST", run_empty, 0, 0, FLW_PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", run_absent, 0, 0, 0},
    [0x85] = {"TUPLE1", run_tuple_of, 0, 1, 0},
    [0x86] = {"TUPLE2", run_tuple_of, 0, 2, 0},
    [0x87] = {"TUPLE3", run_tuple_of, 0, 3, 0},
    ['t'] = {"TUPLE", run_tuple, 0, 0, 0},
    ['s'] = {"SETITEM", run_extend_by, 0, 2, FLW_PICKLE_DICT},
    ['u'] = {"SETITEMS", run_extend, 0, 0, FLW_PICKLE_DICT},
    ['a'] = {"APPEND", run_extend_by, 0, 1, FLW_PICKLE_LIST},
    ['e'] = {"APPENDS", run_extend, 0, 0, FLW_PICKLE_LIST},
    [0x94] = {"MEMOIZE", run_memoize, 0, 0, 0},
    ['q'] = {"BINPUT", run_put, 1, 0, 0},
    ['r'] = {"LONG_BINPUT", run_put, 4, 0, 0},
    ['h'] = {"BINGET", run_get, 1, 0, 0},
    ['j'] = {"LONG_BINGET", run_get, 4, 0, 0},
};

struct refused {
    uint8_t code; /* 0: the end */
    const char *name;
};

/* Opcodes that import, call or make objects. */
static const struct refused unsafe[] = {
    {'c', "GLOBAL"},    {0x93, "STACK_GLOBAL"}, {'i', "INST"},
    {'o', "OBJ"},       {0x81, "NEWOBJ"},       {0x92, "NEWOBJ_EX"},
    {'R', "REDUCE"},    {'b', "BUILD"},         {0x82, "EXT1"},
    {0x83, "EXT2"},     {0x84, "EXT4"},         {'P', "PERSID"},
    {'Q', "BINPERSID"}, {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"},
    {0, NULL},
};

/* Opcodes that no snapshot has. */
static const struct refused unused[] = {
    {'1', "POP_MARK"},   {'2', "DUP"},         {'F', "FLOAT"},      {'I', "INT"},
    {'L', "LONG"},       {'S', "STRING"},      {'T', "BINSTRING"},  {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},    {'d', "DICT"},        {'l', "LIST"},       {'g', "GET"},
    {'p', "PUT"},        {0x8E, "BINBYTES8"},  {0x8F, "EMPTY_SET"}, {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"}, {0x96, "BYTEARRAY8"}, {0, NULL},
};

static const char *find_refused(const struct refused *at, uint8_t code)
{
    while (at->code != 0 && at->code != code) {
        at++;
    }
    return at->name;
}

static bool refuse(struct machine *m, uint8_t code)
{
    const char *name = find_refused(unsafe, code);
    name = name == NULL ? find_refused(unused, code) : name;
    return name == NULL
               ? flw_input_fail(m->input, m->opcode_offset, "0x%02X is not a pickle opcode", code)
               : flw_input_fail(m->input, m->opcode_offset,
                                "the opcode %s is refused: a snapshot holds data only", name);
}

static inline bool step(struct machine *m)
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
    m->opcode = opcode;
    if (opcode->number_bytes == 0) {
        return opcode->run(m, opcode->number);
    }
    const unsigned char *bytes = take(m, opcode->number_bytes);
    return bytes != NULL && opcode->run(m, little_endian(bytes, opcode->number_bytes));
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
    uint64_t end_offset = flw_input_offset(m->input);
    if (end_offset < m->frame_end) {
        return fail(m, "the last frame claims more bytes than there are");
    }
    m->kept->root = m->stack[m->depth - 1];
    bool is_drained = flw_input_drain(m->input);
    m->kept->rest_bytes = flw_input_offset(m->input) - end_offset;
    return is_drained;
}

bool flw_pickle_read(struct flw_input *input, struct flw_pickle *out)
{
    struct machine m = {.input = input, .kept = out};
    *out = (struct flw_pickle){.item_count = 1, .byte_count = 1};
    bool is_read = run(&m);
    free(m.stack);
    flw_largearray_free(m.memo, m.memo_room, sizeof(*m.memo));
    if (!is_read) {
        flw_pickle_finish(out);
    }
    return is_read;
}
