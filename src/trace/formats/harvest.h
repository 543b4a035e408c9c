/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what is kept of a pickle: dicts with the pairs that a vocabulary names, and lists of them.
 * Does not: read pickles.
 *
 * A container is a node of 8 bytes: where in the file it begins, and where its first chunk lies in an
 * array of bytes. A dict's chunk is the place of the next one, the number of its *shape* (keys, kinds
 * and widths of its values, each shape kept once) and the bytes of the values: an event of a
 * snapshot takes about 22. A list's chunk is the place of the next one, a count, and the steps from
 * one item's node to the next one's. A chunk without entries is not made, so a container that is
 * not asked for is its node and no item. A dict that is a stack frame is a number under a key of its own, and a
 * list of such dicts is the number of a stack: it has no items (stacks.h).
 *
 * INVARIANTS
 *   1. Every chunk, shape and node that is named exists; 0 is no chunk.
 *   2. A list's count is the sum over its chunks.
 */
#ifndef FLW_TRACE_FORMATS_HARVEST_H
#define FLW_TRACE_FORMATS_HARVEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/stacks.h"

enum flw_pickle_kind {
    FLW_PICKLE_ABSENT,   /* not there, or of no use: None, a float, bytes, other tuples */
    FLW_PICKLE_BOOL,     /* bits: 0 or 1 */
    FLW_PICKLE_WORD,     /* a string of the vocabulary; bits: its number */
    FLW_PICKLE_UNSIGNED, /* bits: the number, from 0 */
    FLW_PICKLE_NEGATIVE, /* bits: two's complement */
    FLW_PICKLE_TEXT,     /* a string that is no word; bits: its number in the intern */
    FLW_PICKLE_PAIR,     /* a tuple of two numbers; bits: its number in the intern */
    FLW_PICKLE_DICT,     /* bits: node */
    FLW_PICKLE_LIST      /* bits: node */
};

#define FLW_PICKLE_WORDS_MAX 64

struct flw_pickle_value {
    uint64_t bits;
    uint32_t kind; /* enum flw_pickle_kind */
};

/* A dict that has all three is a stack frame, and nothing else of it is kept: two texts and a number. */
struct flw_pickle_frame_words {
    uint32_t function, file, line;
};

struct flw_pickle_vocabulary {
    const char *const *words;
    uint32_t count;                             /* at most FLW_PICKLE_WORDS_MAX */
    const struct flw_pickle_frame_words *frame; /* NULL: there are none */
};

struct flw_harvest;

/* The vocabulary is borrowed. NULL: no memory. */
struct flw_harvest *flw_harvest_create(const struct flw_pickle_vocabulary *vocabulary);
void flw_harvest_destroy(struct flw_harvest *harvest);

/* An empty container that begins at `offset` of the file. False: no memory. */
bool flw_harvest_add_node(struct flw_harvest *harvest, enum flw_pickle_kind kind, uint64_t offset,
                          struct flw_pickle_value *out_value);

/* Append items, or keys and values in turn; what is of no use is left out: so are texts that come
 * with nothing else of use, for every stack frame has some. Of a dict at most FLW_PICKLE_WORDS_MAX + 1
 * pairs are taken, one too many. What a list of frames is extended by once it is a stack is left out:
 * writers put a thousand items at a time, so it is deeper than most. False: no memory, or more than 4 GiB kept. */
bool flw_harvest_extend(struct flw_harvest *harvest, struct flw_pickle_value container,
                        const struct flw_pickle_value *values, size_t value_count);

/* What a dict has, by words of the vocabulary. All zero is of no dict and has nothing. */
struct flw_harvest_dict {
    struct flw_pickle_value dict;
    uint64_t words; /* one bit each: it is there */
    struct flw_pickle_value values[FLW_PICKLE_WORDS_MAX];
};
_Static_assert(FLW_PICKLE_WORDS_MAX <= 64, "a bit for each word");

/* All of it in one walk: who wants several values opens a dict once. What is no dict has nothing. */
void flw_harvest_open(const struct flw_harvest *harvest, struct flw_pickle_value dict,
                      struct flw_harvest_dict *out);

/* The value under a word; the last one where a key is given twice. */
static inline struct flw_pickle_value flw_harvest_value(const struct flw_harvest_dict *dict,
                                                        uint32_t word)
{
    bool is_there = (dict->words >> word & 1) != 0;
    return is_there ? dict->values[word] : (struct flw_pickle_value){0, FLW_PICKLE_ABSENT};
}

/* The number of the stack that a list is, the innermost frame first; 0 for anything else. */
uint32_t flw_harvest_stack(const struct flw_harvest *harvest, struct flw_pickle_value list);

/* The stacks, to add texts to; and as the caller's, the harvest has none then. */
struct flw_stacks *flw_harvest_stacks(struct flw_harvest *harvest);
struct flw_stacks flw_harvest_take_stacks(struct flw_harvest *harvest);

/* The texts and pairs that values name. */
struct flw_intern *flw_harvest_intern(struct flw_harvest *harvest);
const struct flw_intern *flw_harvest_interned(const struct flw_harvest *harvest);

/* Offset in the unpacked file at which a dict or list begins. */
uint64_t flw_harvest_offset(const struct flw_harvest *harvest, struct flw_pickle_value container);

/* Entries kept in a dict or list; 0 for anything else. */
uint32_t flw_harvest_count(const struct flw_harvest *harvest, struct flw_pickle_value container);

/* Was something in this list that was not kept: no dict or list, or a dict without any of the words? */
bool flw_harvest_has_left_out(const struct flw_harvest *harvest, struct flw_pickle_value list);

/* The containers of a list, in order. */
struct flw_harvest_cursor {
    uint64_t at;    /* byte of the next item */
    uint64_t node;  /* of the item before it */
    uint32_t left;  /* of the current chunk */
    uint32_t chunk; /* 0: the end */
};
struct flw_harvest_cursor flw_harvest_first(const struct flw_harvest *harvest,
                                            struct flw_pickle_value list);
/* False: no more. */
bool flw_harvest_next(const struct flw_harvest *harvest, struct flw_harvest_cursor *cursor,
                      struct flw_pickle_value *out_value);

#endif
