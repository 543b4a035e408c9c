/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: data-only unpickling, protocols 2 to 5, of the part of a pickle that a reader asks for.
 * Does not: import, call or build anything: an opcode that could is refused by name.
 *
 * The reader gives a vocabulary. Kept are the pairs of dicts whose key is a word of it, and lists
 * and dicts inside lists; a dict without such a pair, and every number or string in a list, is
 * forgotten as soon as it is complete. In a PyTorch snapshot three quarters of all opcodes fetch
 * stack frames, which are shared and concern nobody here: they cost no memory.
 *
 * Memory: 16 B a memo entry and stack slot, 8 B a kept pair, about 16 B a container; never more
 * than a constant times the bytes read. Nothing recurses, so nesting and cycles are harmless; who
 * walks the result must bound the walk, for a list may hold another many times.
 */
#ifndef FLW_TRACE_PICKLE_H
#define FLW_TRACE_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/input.h"

enum flw_pickle_kind {
    FLW_PICKLE_ABSENT,   /* not there, or of no use: None, a float, bytes, a tuple */
    FLW_PICKLE_BOOL,     /* bits: 0 or 1 */
    FLW_PICKLE_WORD,     /* a string; bits: its number in the vocabulary or FLW_PICKLE_NO_WORD */
    FLW_PICKLE_UNSIGNED, /* bits: the number, from 0 */
    FLW_PICKLE_NEGATIVE, /* bits: two's complement */
    FLW_PICKLE_DICT,     /* bits: node */
    FLW_PICKLE_LIST      /* bits: node */
};

#define FLW_PICKLE_NO_WORD    UINT32_MAX
#define FLW_PICKLE_WORDS_MAX  64
#define FLW_PICKLE_WORD_BYTES 31 /* longest word of a vocabulary */

struct flw_pickle_value {
    uint64_t bits;
    uint32_t kind; /* enum flw_pickle_kind */
};

struct flw_pickle_vocabulary {
    const char *const *words;
    uint32_t count; /* at most FLW_PICKLE_WORDS_MAX */
};

struct flw_pickle;

/* Reads to the end of the input. False: nothing is held, the input's message says why. */
bool flw_pickle_read(struct flw_input *input, const struct flw_pickle_vocabulary *vocabulary,
                     struct flw_pickle **out_pickle);
void flw_pickle_destroy(struct flw_pickle *pickle);

struct flw_pickle_value flw_pickle_root(const struct flw_pickle *pickle);

/* The value under a word of the vocabulary; the last one where a key is given twice. */
struct flw_pickle_value flw_pickle_get(const struct flw_pickle *pickle,
                                       struct flw_pickle_value dict, uint32_t word);

/* Offset in the unpacked file at which a dict or list begins. */
uint64_t flw_pickle_offset(const struct flw_pickle *pickle, struct flw_pickle_value container);

/* Containers in a list; 0 for what is no list. */
uint32_t flw_pickle_count(const struct flw_pickle *pickle, struct flw_pickle_value list);

/* The containers of a list, in order: start from zero with flw_pickle_first. */
struct flw_pickle_cursor {
    uint64_t cell;
    uint32_t left;  /* of the current chunk */
    uint32_t chunk; /* 0: the end */
};
struct flw_pickle_cursor flw_pickle_first(const struct flw_pickle *pickle,
                                          struct flw_pickle_value list);
/* False: no more. */
bool flw_pickle_next(const struct flw_pickle *pickle, struct flw_pickle_cursor *cursor,
                     struct flw_pickle_value *out_value);

#endif
