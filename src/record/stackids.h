/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: encoding and decoding the stack of each record of a chunk: the contents of a STACKS chunk
 * of a trace file.
 * Does not: hold the stacks (trace/trace/stacks.h).
 *
 * A number is guessed from the three before it: a repeating program allocates from the same places in the same order, so most records
 * cost nothing. A table of 4,096 numbers, and the three, are zeros at the start of a chunk. The guess is at place
 *     ((((last * K ^ second last) * K) ^ third last) * K mod 2^64) >> 52,  K = 0x9E3779B97F4A7C15
 * and each number is stored there once known. Items, up to the end of the chunk, are varints:
 *     2 n      the next n records, at least 1, have the guessed numbers
 *     2 s + 1  the next record has the number s */
#ifndef FLW_RECORD_STACKIDS_H
#define FLW_RECORD_STACKIDS_H

#include "record/wire.h"

#define FLW_STACKIDS_GUESSES 4096

/* Zeros before the first record of a chunk. */
struct flw_stackids {
    uint32_t last[3]; /* the latest first */
    uint32_t run;     /* writing: guessed numbers without an item yet */
    uint32_t guesses[FLW_STACKIDS_GUESSES];
};

#define FLW_STACKIDS_BYTES_MAX (2 * FLW_WIRE_VARINT_BYTES) /* that a number adds, at most */

static inline uint32_t *flw_stackids_guess(struct flw_stackids *ids)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < 3; i++) {
        hash = (hash ^ ids->last[i]) * UINT64_C(0x9E3779B97F4A7C15);
    }
    return &ids->guesses[hash >> 52];
}

static inline void flw_stackids_step(struct flw_stackids *ids, uint32_t *guess, uint32_t number)
{
    *guess = number;
    ids->last[2] = ids->last[1];
    ids->last[1] = ids->last[0];
    ids->last[0] = number;
}

/* Call after the last record of a chunk. */
static inline void flw_stackids_end(struct flw_stackids *ids, struct flw_wire_out *out)
{
    if (ids->run > 0) {
        flw_wire_put_varint(out, (uint64_t)ids->run << 1);
        ids->run = 0;
    }
}

static inline void flw_stackids_put(struct flw_stackids *ids, uint32_t number,
                                    struct flw_wire_out *out)
{
    uint32_t *guess = flw_stackids_guess(ids);
    if (*guess == number) {
        ids->run++;
    } else {
        flw_stackids_end(ids, out);
        flw_wire_put_varint(out, (uint64_t)number << 1 | 1);
    }
    flw_stackids_step(ids, guess, number);
}

/* Read all `count` numbers of a chunk. False: the bytes have fewer or more, or are invalid. */
static inline bool flw_stackids_get(struct flw_stackids *ids, struct flw_wire_in in,
                                    uint32_t *numbers, uint64_t count)
{
    uint64_t at = 0;
    while (in.at < in.end) {
        uint64_t item, times;
        if (!flw_wire_get_varint(&in, &item)) {
            return false;
        }
        times = (item & 1) != 0 ? 1 : item >> 1;
        if (times == 0 || times > count - at || ((item & 1) != 0 && item >> 1 > UINT32_MAX)) {
            return false;
        }
        for (; times > 0; times--) {
            uint32_t *guess = flw_stackids_guess(ids);
            numbers[at] = (item & 1) != 0 ? (uint32_t)(item >> 1) : *guess;
            flw_stackids_step(ids, guess, numbers[at++]);
        }
    }
    return at == count;
}

#endif
