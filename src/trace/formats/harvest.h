/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the kept part of a pickle: dicts with the pairs for the keys of a vocabulary, and lists of such dicts.
 * Does not: read pickles.
 *
 * A container is a node of 8 bytes: the container's offset in the file, and the offset of the first chunk in an array
 * of bytes. A dict's chunk has the offset of the next chunk, the number of the *shape* (keys, kinds and widths of the
 * values, each shape stored once) and the bytes of the values: about 22 bytes for an event of a snapshot. A list's
 * chunk has the offset of the next chunk, a count, and the steps between the items' nodes. A chunk without entries is
 * not made, so an unneeded container costs only the node. A dict that is a stack frame is stored as a number under a
 * special key, and a list of such dicts as the number of a stack, without items (stacks.h).
 *
 * INVARIANTS
 *   1. Every chunk, shape and node that is referenced exists; 0 is no chunk.
 *   2. A list's count is the sum over the chunks.
 */
#ifndef FLW_TRACE_FORMATS_HARVEST_H
#define FLW_TRACE_FORMATS_HARVEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/stacks.h"

enum flw_pickle_kind {
    FLW_PICKLE_ABSENT,   /* absent, or not kept: None, a float, bytes, other tuples */
    FLW_PICKLE_BOOL,     /* bits: 0 or 1 */
    FLW_PICKLE_WORD,     /* a string of the vocabulary; bits: the number */
    FLW_PICKLE_UNSIGNED, /* bits: the number, from 0 */
    FLW_PICKLE_NEGATIVE, /* bits: two's complement */
    FLW_PICKLE_TEXT,     /* a string that is no word; bits: the number in the intern */
    FLW_PICKLE_PAIR,     /* a tuple of two numbers; bits: the number in the intern */
    FLW_PICKLE_DICT,     /* bits: node */
    FLW_PICKLE_LIST      /* bits: node */
};

#define FLW_PICKLE_WORDS_MAX 64

struct flw_pickle_value {
    uint64_t bits;
    uint32_t kind; /* enum flw_pickle_kind */
};

/* Keys of a stack frame: a dict with all three is one, and only these two texts and the number are kept. */
struct flw_pickle_frame_words {
    uint32_t function, file, line;
};

struct flw_pickle_vocabulary {
    const char *const *words;
    uint32_t count;                             /* at most FLW_PICKLE_WORDS_MAX */
    const struct flw_pickle_frame_words *frame; /* NULL: frames are not recognised */
};

struct flw_harvest;

/* Create a harvest. The vocabulary is borrowed. Returns NULL if memory runs out. */
struct flw_harvest *flw_harvest_create(const struct flw_pickle_vocabulary *vocabulary);
void flw_harvest_destroy(struct flw_harvest *harvest);

/* Add an empty container that begins at `offset` of the file. Returns false if memory runs out. */
bool flw_harvest_add_node(struct flw_harvest *harvest, enum flw_pickle_kind kind, uint64_t offset,
                          struct flw_pickle_value *out_value);

/* Append items, or keys and values in turn. Values that are not needed are left out, also texts without any needed
 * value beside them, because every stack frame has texts. A dict takes at most FLW_PICKLE_WORDS_MAX + 1 pairs, one too
 * many. A list that is already a stack takes no more frames: writers append a thousand items at a time, so few stacks
 * are that deep. Returns false if memory runs out or more than 4 GiB are kept. */
bool flw_harvest_extend(struct flw_harvest *harvest, struct flw_pickle_value container,
                        const struct flw_pickle_value *values, size_t value_count);

/* Values of a dict, by word of the vocabulary. All zero belongs to no dict and has no values. */
struct flw_harvest_dict {
    struct flw_pickle_value dict;
    uint64_t words; /* a bit per word: the value is there */
    struct flw_pickle_value values[FLW_PICKLE_WORDS_MAX];
};
_Static_assert(FLW_PICKLE_WORDS_MAX <= 64, "a bit for each word");

/* Read all values of a dict in one walk, for several uses. A value that is no dict has none. */
void flw_harvest_open(const struct flw_harvest *harvest, struct flw_pickle_value dict,
                      struct flw_harvest_dict *out);

/* Return the value of a word; the last one if a key occurs twice. */
static inline struct flw_pickle_value flw_harvest_value(const struct flw_harvest_dict *dict,
                                                        uint32_t word)
{
    bool is_there = (dict->words >> word & 1) != 0;
    return is_there ? dict->values[word] : (struct flw_pickle_value){0, FLW_PICKLE_ABSENT};
}

/* Return the number of the stack of a list, innermost frame first; 0 for any other value. */
uint32_t flw_harvest_stack(const struct flw_harvest *harvest, struct flw_pickle_value list);

/* Return the stacks, for adding texts; or move them to the caller. */
struct flw_stacks *flw_harvest_stacks(struct flw_harvest *harvest);
struct flw_stacks flw_harvest_take_stacks(struct flw_harvest *harvest);

/* Return the texts and pairs to which values refer. */
struct flw_intern *flw_harvest_intern(struct flw_harvest *harvest);
const struct flw_intern *flw_harvest_interned(const struct flw_harvest *harvest);

/* Return the offset of a dict or list in the unpacked file. */
uint64_t flw_harvest_offset(const struct flw_harvest *harvest, struct flw_pickle_value container);

/* Return the number of kept entries of a dict or list; 0 for any other value. */
uint32_t flw_harvest_count(const struct flw_harvest *harvest, struct flw_pickle_value container);

/* True if an item of this list was not kept: no dict or list, or a dict without any of the words. */
bool flw_harvest_has_left_out(const struct flw_harvest *harvest, struct flw_pickle_value list);

/* Walks the containers of a list, in order. */
struct flw_harvest_cursor {
    uint64_t at;    /* byte of the next item */
    uint64_t node;  /* of the previous item */
    uint32_t left;  /* items left in the current chunk */
    uint32_t chunk; /* 0: the end */
};
struct flw_harvest_cursor flw_harvest_first(const struct flw_harvest *harvest,
                                            struct flw_pickle_value list);
/* Return the next container; false at the end. */
bool flw_harvest_next(const struct flw_harvest *harvest, struct flw_harvest_cursor *cursor,
                      struct flw_pickle_value *out_value);

#endif
