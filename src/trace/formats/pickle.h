/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: data-only unpickling, protocols 2 to 5, of the part of a snapshot's pickle that its reader needs.
 * Does not: import, call or build anything: an opcode that could do so is rejected by name.
 *
 * Pairs of dicts with a word (pytorch_words.h) as key, and lists and dicts inside lists, are kept. A dict without such a
 * pair, and every number or string in a list, is dropped once complete. Other texts are stored once each, cut at
 * FLW_PICKLE_TEXT_BYTES, as are pairs of numbers. Three quarters of all opcodes fetch shared stack frames; a dict in
 * which a function, a file and a line alone are kept is a frame, and each frame and each stack is stored once (stacks.h).
 *
 * Memory: 8 bytes per memo entry and per container, and the kept values (about 18 bytes for an event of a snapshot); at
 * most a constant times the bytes read. Nothing recurses, so nesting and cycles are harmless. A walk over the result
 * needs a bound, because a list may contain another list many times.
 *
 * INVARIANTS
 *   1. Memo, stack and kept values hold at most one entry per byte read.
 *   2. Every list, chunk, shape and node that is referenced exists; chunk 0 is none.
 *   3. A list's count is the sum over its chunks.
 */
#ifndef FLW_TRACE_FORMATS_PICKLE_H
#define FLW_TRACE_FORMATS_PICKLE_H

#include "trace/formats/pytorch_words.h"
#include "trace/io/input.h"
#include "trace/trace/stacks.h"

#define FLW_PICKLE_TEXT_BYTES FLW_STACK_TEXT_BYTES /* most kept bytes of a text */

enum flw_pickle_kind {
    FLW_PICKLE_ABSENT,   /* absent, or not kept: None, a float, bytes, other tuples */
    FLW_PICKLE_BOOL,     /* bits: 0 or 1 */
    FLW_PICKLE_WORD,     /* a string that is a word; bits: the number */
    FLW_PICKLE_UNSIGNED, /* bits: the number, from 0 */
    FLW_PICKLE_NEGATIVE, /* bits: two's complement */
    FLW_PICKLE_TEXT,     /* a string that is no word; bits: the number among the texts */
    FLW_PICKLE_PAIR,     /* a tuple of two numbers; bits: the number among the pairs */
    FLW_PICKLE_DICT,     /* bits: node */
    FLW_PICKLE_LIST      /* bits: node */
};

struct flw_pickle_value {
    uint64_t bits;
    uint32_t kind; /* enum flw_pickle_kind */
};

struct flw_pickle_pair {
    uint64_t first, second;
};

/* Values of a dict, by word. */
struct flw_pickle_dict {
    struct flw_pickle_value of; /* the dict */
    uint64_t words;             /* a bit per word: the value is there */
    struct flw_pickle_value values[WORD_COUNT];
};

struct flw_pickle_list {
    uint32_t first, last; /* chunks of items: next chunk, count, the items' nodes */
    uint32_t count;       /* dicts and lists that are kept */
    bool
        has_left_out; /* other items were not: no dict or list, or a dict without any of the words */
};

/* A pickle that was read; all zero is empty. */
struct flw_pickle {
    struct flw_pickle_value root;
    uint64_t rest_bytes; /* of the file, after the pickle */
    struct flw_intern texts, pairs;
    struct flw_stacks stacks;

    /* The rest is pickle_values.c's. */
    struct flw_pickle_dict open; /* the last one that was read */
    struct flw_pickle_node *nodes;
    size_t node_count, node_room;
    struct flw_pickle_list *lists;
    size_t list_count, list_room;
    uint32_t *items;
    size_t item_count, item_room;
    unsigned char *bytes; /* of dicts; 8 bytes beyond the used ones are readable */
    size_t byte_count, byte_room;
    struct flw_intern shapes; /* of dicts: 2 bytes a value: word + 1; width and kind + 1 */
    char shape[2 * WORD_COUNT + 1];
    uint32_t shape_number; /* of `shape`, the last one */
};

/* Read to the end of the input. Returns false if that fails: nothing is held; see the input's message. */
bool flw_pickle_read(struct flw_input *input, struct flw_pickle *out);
void flw_pickle_finish(struct flw_pickle *pickle);

/* Read all values of a dict. Any other value, and a frame, has none. */
void flw_pickle_open(const struct flw_pickle *pickle, struct flw_pickle_value dict,
                     struct flw_pickle_dict *out);

/* Return the dict's value for the word; the last one if the key occurs twice. An event is read with a dozen words in a
 * row. */
static inline struct flw_pickle_value flw_pickle_get(struct flw_pickle *pickle,
                                                     struct flw_pickle_value dict, enum word word)
{
    struct flw_pickle_dict *open = &pickle->open;
    if (open->of.bits != dict.bits || open->of.kind != dict.kind) {
        flw_pickle_open(pickle, dict, open);
    }
    return (open->words >> word & 1) != 0 ? open->values[word]
                                          : (struct flw_pickle_value){0, FLW_PICKLE_ABSENT};
}

static inline bool flw_pickle_is_word(struct flw_pickle_value value, enum word word)
{
    return value.kind == FLW_PICKLE_WORD && value.bits == word;
}

static inline bool flw_pickle_is_true(struct flw_pickle_value value)
{
    return (value.kind == FLW_PICKLE_BOOL || value.kind == FLW_PICKLE_UNSIGNED) && value.bits != 0;
}

/* Return the text of a word or another text; NULL for any other value. */
static inline const char *flw_pickle_text(const struct flw_pickle *pickle,
                                          struct flw_pickle_value value)
{
    return value.kind == FLW_PICKLE_TEXT   ? flw_intern_text(&pickle->texts, (uint32_t)value.bits)
           : value.kind == FLW_PICKLE_WORD ? words[value.bits]
                                           : NULL;
}

/* Return the number of the stack of a list, innermost frame first; 0 for any other value. */
uint32_t flw_pickle_stack(const struct flw_pickle *pickle, struct flw_pickle_value list);

/* Return the list, which has no items if it is a stack, or any other value. */
const struct flw_pickle_list *flw_pickle_list(const struct flw_pickle *pickle,
                                              struct flw_pickle_value list);

/* Return the offset of a dict or list in the unpacked file; 0 for any other value. */
uint64_t flw_pickle_offset(const struct flw_pickle *pickle, struct flw_pickle_value container);

/* Walks the kept items of a list, in order. */
struct flw_pickle_cursor {
    uint32_t next; /* chunk; begin with `first` of the list */
    uint32_t at, left;
};
/* Return the next item; false at the end. */
bool flw_pickle_next(const struct flw_pickle *pickle, struct flw_pickle_cursor *cursor,
                     struct flw_pickle_value *out_item);

/* Return the bytes of a text cut to at most `most`, without a partial character. */
size_t flw_pickle_cut_text(const void *text, size_t count, size_t most);

/* ---- for pickle.c ---- */

/* Add an empty container that begins at `offset` of the file. Returns false if memory runs out. */
bool flw_pickle_add_node(struct flw_pickle *pickle, uint32_t kind, uint64_t offset,
                         struct flw_pickle_value *out_value);

#define FLW_PICKLE_NO_MEMORY "no memory to read on"

/* Append items, or keys and values in turn. A dict has each word once, except twice in one call, and a frame takes no
 * more keys. A list that is already a stack takes no more frames: writers append a thousand items at a time, so few
 * stacks are that deep. Returns NULL, or the reason of a failure. */
const char *flw_pickle_extend(struct flw_pickle *pickle, struct flw_pickle_value container,
                              const struct flw_pickle_value *values, size_t count);

#endif
