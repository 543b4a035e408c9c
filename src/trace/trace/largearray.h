/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: arrays that grow to hundreds of megabytes. Growth remaps pages, which needs neither a copy nor room for two
 * arrays, and unused room has no pages.
 * Does not: store an array's count and room; the owner does. record/array.h is for small arrays.
 *
 * An array with less room than FLW_LARGEARRAY_BYTES is malloc's, so that sanitizers check the bounds.
 */
#ifndef FLW_TRACE_TRACE_LARGEARRAY_H
#define FLW_TRACE_TRACE_LARGEARRAY_H

#include <stdbool.h>
#include <stddef.h>

#define FLW_LARGEARRAY_BYTES ((size_t)1 << 20)

/* Make room for at least `count` elements of `size` bytes in the array at *place; new room is zero. The room doubles,
 * or grows to exactly `count` if that is more. Returns false if memory runs out; the old array stays. */
bool flw_largearray_grow(void *place, size_t count, size_t *room, size_t size);

/* Make room for `count` elements, or for element number `count`, which is one more. */
#define FLW_LARGEARRAY_HOLDS(array, count, room) \
    ((count) <= (room) || flw_largearray_grow(&(array), (count), &(room), sizeof *(array)))
#define FLW_LARGEARRAY_FITS(array, count, room) FLW_LARGEARRAY_HOLDS(array, (count) + 1, room)

/* Append a value. Returns false if memory runs out; the array stays. */
#define FLW_LARGEARRAY_ADD(array, count, room, value) \
    (FLW_LARGEARRAY_FITS(array, count, room) && ((array)[(count)++] = (value), true))

/* Free an array. NULL with a room of 0 is allowed. */
void flw_largearray_free(void *array, size_t room, size_t size);

#endif
