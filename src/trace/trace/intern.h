/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: texts and pairs of numbers, each stored once under a number.
 * Does not: remove any.
 */
#ifndef FLW_TRACE_TRACE_INTERN_H
#define FLW_TRACE_TRACE_INTERN_H

#include "record/addressmap.h"

struct flw_intern_pair {
    uint64_t first, second;
};

/* All zero is empty. */
struct flw_intern {
    char *texts; /* each ends with a zero byte */
    size_t text_bytes, text_room;
    struct flw_intern_pair *pairs;
    size_t pair_count, pair_room;
    struct flw_addressmap text_places; /* hash -> offset in texts */
    struct flw_addressmap pair_places; /* hash -> index in pairs */
};

/* Return the number of a text; a new text gets a new number. A text ends at the first zero byte. Returns false if
 * memory runs out or texts take 4 GiB. */
bool flw_intern_add_text(struct flw_intern *intern, const void *bytes, size_t count, uint64_t *out);

/* Return the number of a pair, from 0, in the same way. */
bool flw_intern_add_pair(struct flw_intern *intern, struct flw_intern_pair pair, uint64_t *out);

static inline const char *flw_intern_text(const struct flw_intern *intern, uint64_t number)
{
    return intern->texts + number;
}

/* Return the FNV-1a hash of a text. */
uint64_t flw_intern_hash(const void *bytes, size_t count);

void flw_intern_finish(struct flw_intern *intern);

#endif
