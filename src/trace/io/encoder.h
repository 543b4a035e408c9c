/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing the opcodes of a pickle, protocol 4: dicts, lists, words, numbers, truth.
 * Does not: know what is in it. A failing file shows in ferror.
 */
#ifndef FLW_TRACE_IO_ENCODER_H
#define FLW_TRACE_IO_ENCODER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FLW_ENCODER_WORDS_MAX 64
#define FLW_ENCODER_BATCH     1000 /* items of a list between two marks, as Python writes them */

struct flw_encoder {
    FILE *file;
    const char *const *words;               /* of at most 255 bytes each */
    uint32_t places[FLW_ENCODER_WORDS_MAX]; /* in the memo, from 1; 0: not written yet */
    uint32_t memo_count;
};

void flw_encoder_begin(struct flw_encoder *encoder, FILE *file, const char *const *words);
void flw_encoder_end(struct flw_encoder *encoder);

void flw_encoder_put_word(struct flw_encoder *encoder, unsigned word);
/* Any text; a byte that is no UTF-8 becomes a question mark. Half a pair of UTF-16, as Python's own pickles
 * have it, is UTF-8 here. */
void flw_encoder_put_text(struct flw_encoder *encoder, const char *text);
void flw_encoder_put_number(struct flw_encoder *encoder, uint64_t number);
/* Not a number, where readers look for one that is not known. */
void flw_encoder_put_unknown(struct flw_encoder *encoder);
void flw_encoder_put_bool(struct flw_encoder *encoder, bool is_true);
void flw_encoder_put_empty_list(struct flw_encoder *encoder);

/* Keep what was written last in the memo: its place, from 1. Later, write it again by that. */
uint32_t flw_encoder_memoize(struct flw_encoder *encoder);
void flw_encoder_put_again(struct flw_encoder *encoder, uint32_t place);

/* Keys and values come in turn between the two. */
void flw_encoder_open_dict(struct flw_encoder *encoder);
void flw_encoder_close_dict(struct flw_encoder *encoder);

/* Call next before each item, with its number from 0. */
void flw_encoder_open_list(struct flw_encoder *encoder);
void flw_encoder_next_item(struct flw_encoder *encoder, uint64_t number);
void flw_encoder_close_list(struct flw_encoder *encoder);

/* (first, second) */
void flw_encoder_put_pair(struct flw_encoder *encoder, uint64_t first, uint64_t second);

#endif
