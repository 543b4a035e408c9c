/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing the opcodes of a pickle, protocol 4: dicts, lists, words, numbers, booleans.
 * Does not: interpret values. Write errors are visible in ferror.
 */
#ifndef FLW_TRACE_IO_ENCODER_H
#define FLW_TRACE_IO_ENCODER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define FLW_ENCODER_WORDS_MAX 64
#define FLW_ENCODER_BATCH     1000 /* items of a list between two marks, as in Python */

struct flw_encoder {
    FILE *file;
    const char *const *words;               /* of at most 255 bytes each */
    uint32_t places[FLW_ENCODER_WORDS_MAX]; /* numbers in the memo, from 1; 0: not written yet */
    uint32_t memo_count;
};

void flw_encoder_begin(struct flw_encoder *encoder, FILE *file, const char *const *words);
void flw_encoder_end(struct flw_encoder *encoder);

void flw_encoder_put_word(struct flw_encoder *encoder, unsigned word);
/* Write any text; an invalid UTF-8 byte becomes a question mark. Half of a UTF-16 pair, as in Python's own pickles,
 * counts as UTF-8. */
void flw_encoder_put_text(struct flw_encoder *encoder, const char *text);
void flw_encoder_put_number(struct flw_encoder *encoder, uint64_t number);
/* Write a NaN for an unknown number. */
void flw_encoder_put_unknown(struct flw_encoder *encoder);
void flw_encoder_put_bool(struct flw_encoder *encoder, bool is_true);
void flw_encoder_put_empty_list(struct flw_encoder *encoder);

/* Store the last value in the memo and return the number, from 1, for writing that value again. */
uint32_t flw_encoder_memoize(struct flw_encoder *encoder);
void flw_encoder_put_again(struct flw_encoder *encoder, uint32_t place);

/* Open a dict; keys and values alternate until the dict is closed. */
void flw_encoder_open_dict(struct flw_encoder *encoder);
void flw_encoder_close_dict(struct flw_encoder *encoder);

/* Open a list. Call flw_encoder_next_item before each item, with the item's number from 0. */
void flw_encoder_open_list(struct flw_encoder *encoder);
void flw_encoder_next_item(struct flw_encoder *encoder, uint64_t number);
void flw_encoder_close_list(struct flw_encoder *encoder);

/* Write the tuple (first, second). */
void flw_encoder_put_pair(struct flw_encoder *encoder, uint64_t first, uint64_t second);

#endif
