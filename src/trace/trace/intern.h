/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: texts and pairs of numbers, each once, with a number to know it by.
 * Does not: forget any.
 */
#ifndef FLW_TRACE_TRACE_INTERN_H
#define FLW_TRACE_TRACE_INTERN_H

#include "record/addressmap.h"

struct flw_intern_pair {
    uint64_t first, second;
};

/* All zero is none. */
struct flw_intern {
    char *texts; /* each with its zero byte */
    size_t text_bytes, text_room;
    struct flw_intern_pair *pairs;
    size_t pair_count, pair_room;
    struct flw_addressmap text_places; /* hash -> offset in texts */
    struct flw_addressmap pair_places; /* hash -> index in pairs */
};

/* The number of a text, a new one where it is seen first; it ends at a zero byte if it has one.
 * False: no memory, or 4 GiB of them. */
bool flw_intern_add_text(struct flw_intern *intern, const void *bytes, size_t count, uint64_t *out);

/* The same for a pair; pairs are numbered from 0. */
bool flw_intern_add_pair(struct flw_intern *intern, struct flw_intern_pair pair, uint64_t *out);

static inline const char *flw_intern_text(const struct flw_intern *intern, uint64_t number)
{
    return intern->texts + number;
}

/* FNV-1a of a text. */
uint64_t flw_intern_hash(const void *bytes, size_t count);

void flw_intern_finish(struct flw_intern *intern);

#endif
