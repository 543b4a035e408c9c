/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of the pickle machine: place in the input, stack and marks.
 * Does not: interpret opcodes (pickle.c). Inline, because the loop runs once per few bytes.
 *
 * INVARIANT  marks rise, and none is above the stack.
 */
#ifndef FLW_TRACE_FORMATS_PICKLE_INL_H
#define FLW_TRACE_FORMATS_PICKLE_INL_H

#include <endian.h>
#include <string.h>

#include "base/bits.h"
#include "record/array.h"
#include "trace/formats/pickle.h"

#define FLW_MACHINE_STACK_MAX (1u << 24)
#define FLW_MACHINE_MARKS_MAX 256 /* nesting; snapshots reach 5 */

struct flw_machine {
    struct flw_input *input;
    struct flw_harvest *kept;
    const struct flw_pickle_vocabulary *vocabulary;
    uint8_t word_bytes[FLW_PICKLE_WORDS_MAX];
    struct flw_pickle_value *stack;
    size_t depth, stack_room;
    uint64_t *memo; /* packed; 0: empty entry */
    size_t memo_room;
    uint64_t memo_next; /* entries numbered by MEMOIZE */
    size_t marks[FLW_MACHINE_MARKS_MAX];
    size_t mark_count;
    uint64_t frame_end;
    uint64_t opcode_offset;
    const char *opcode_name;
    uint8_t operand;              /* of the opcode */
    struct flw_pickle_value root; /* once stopped */
    uint64_t end_offset;          /* once stopped: one past STOP */
    bool stopped;
};

static inline bool flw_machine_fail(struct flw_machine *m, const char *what)
{
    return flw_input_fail(m->input, m->opcode_offset, "%s: %s", m->opcode_name, what);
}

static inline bool flw_machine_fail_memory(struct flw_machine *m)
{
    return flw_input_fail(m->input, m->opcode_offset, "no memory to read on");
}

/* Return the next `count` bytes, at most FLW_INPUT_FILL_BYTES, or NULL. */
static inline const unsigned char *flw_machine_take(struct flw_machine *m, size_t count)
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

/* Decode a number. Most are memo indices of one byte or four. */
static inline uint64_t flw_machine_little_endian(const unsigned char *bytes, size_t count)
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

/* Read an argument of `count` bytes, at most 8. */
static inline bool flw_machine_take_number(struct flw_machine *m, size_t count, uint64_t *out)
{
    const unsigned char *bytes = flw_machine_take(m, count);
    *out = bytes != NULL ? flw_machine_little_endian(bytes, count) : 0;
    return bytes != NULL;
}

static inline bool flw_machine_push(struct flw_machine *m, struct flw_pickle_value value)
{
    if (FLW_UNLIKELY(m->depth == m->stack_room)) {
        if (m->depth >= FLW_MACHINE_STACK_MAX) {
            return flw_machine_fail(m, "the stack is deeper than any snapshot's");
        }
        if (!FLW_ARRAY_FITS(m->stack, m->depth, m->stack_room)) {
            return flw_machine_fail_memory(m);
        }
    }
    m->stack[m->depth++] = value;
    return true;
}

static inline size_t flw_machine_floor(const struct flw_machine *m)
{
    return m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
}

static inline bool flw_machine_need(struct flw_machine *m, size_t count)
{
    if (FLW_UNLIKELY(m->depth - flw_machine_floor(m) < count)) {
        return flw_machine_fail(m, "the stack holds too little");
    }
    return true;
}

/* Remove the topmost mark and return the first item above it. */
static inline bool flw_machine_pop_mark(struct flw_machine *m, size_t *out_first)
{
    *out_first = 0;
    if (FLW_UNLIKELY(m->mark_count == 0)) {
        return flw_machine_fail(m, "there is no mark");
    }
    *out_first = m->marks[--m->mark_count];
    return true;
}

#endif
