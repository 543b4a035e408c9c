/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: texts or other strings of bytes, each stored once under a number, from 0 in the order of adding.
 * Does not: remove any.
 *
 * INVARIANT: begins[0] is 0, begins ascends to begins[count], which is byte_count.
 */
#ifndef FLW_TRACE_TRACE_INTERN_H
#define FLW_TRACE_TRACE_INTERN_H

#include "record/addressmap.h"

/* All zero is empty. */
struct flw_intern {
    unsigned char *bytes; /* of all items; largearray.h's, like begins */
    size_t byte_count, byte_room;
    uint64_t *begins; /* of each item, and the end of the last one */
    size_t count, begin_room;
    struct flw_addressmap places; /* hash -> number; may be freed after the last addition */
};

/* Return the number of an item; a new item gets a new number. Returns false if memory runs out. */
bool flw_intern_add(struct flw_intern *intern, const void *bytes, size_t count, uint32_t *out);

/* Add a text in the same way, which ends at the first zero byte, and as an item with it. */
bool flw_intern_add_text(struct flw_intern *intern, const void *bytes, size_t count, uint32_t *out);

static inline size_t flw_intern_size(const struct flw_intern *intern, uint32_t number)
{
    return (size_t)(intern->begins[number + (size_t)1] - intern->begins[number]);
}

/* Return an item, which is valid until the next one is added; items of the same size have the alignment of an array. */
static inline const void *flw_intern_at(const struct flw_intern *intern, uint32_t number)
{
    return intern->bytes + intern->begins[number];
}

static inline const char *flw_intern_text(const struct flw_intern *intern, uint32_t number)
{
    return flw_intern_at(intern, number);
}

/* Return the FNV-1a hash of a text. */
uint64_t flw_intern_hash(const void *bytes, size_t count);

void flw_intern_finish(struct flw_intern *intern);

#endif
