/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: arrays that grow to hundreds of megabytes: they are moved by moving their pages, so growth
 * neither copies nor holds two of them, and only what is used has pages.
 * Does not: keep an array's count and room; its owner does. record/array.h is for the small ones.
 *
 * An array of a room below FLW_LARGEARRAY_BYTES is malloc's, so that a sanitizer sees around it.
 */
#ifndef FLW_TRACE_TRACE_LARGEARRAY_H
#define FLW_TRACE_TRACE_LARGEARRAY_H

#include <stdbool.h>
#include <stddef.h>

#define FLW_LARGEARRAY_BYTES ((size_t)1 << 20)

/* Makes room for at least `count` elements of `size` bytes in the array whose pointer lies at `place`; what
 * is new is zero. The room doubles, but to exactly `count` where that is more. False: no memory, the old
 * array stays. */
bool flw_largearray_grow(void *place, size_t count, size_t *room, size_t size);

/* Room for `count` elements, and for element number `count`, which is one more. */
#define FLW_LARGEARRAY_HOLDS(array, count, room) \
    ((count) <= (room) || flw_largearray_grow(&(array), (count), &(room), sizeof *(array)))
#define FLW_LARGEARRAY_FITS(array, count, room) FLW_LARGEARRAY_HOLDS(array, (count) + 1, room)

/* NULL with a room of 0 is allowed. */
void flw_largearray_free(void *array, size_t room, size_t size);

#endif
