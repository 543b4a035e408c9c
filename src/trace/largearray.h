/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: arrays that grow to hundreds of megabytes: they are moved by moving their pages, so growth
 * neither copies nor holds two of them, and only what is used has pages.
 * Does not: keep an array's count and room; its owner does. record/array.h is for the small ones.
 *
 * An array of a room below FLW_LARGEARRAY_BYTES is malloc's, so that a sanitizer sees around it.
 */
#ifndef FLW_TRACE_LARGEARRAY_H
#define FLW_TRACE_LARGEARRAY_H

#include <stddef.h>

#define FLW_LARGEARRAY_BYTES ((size_t)1 << 20)

/* `array` with room for at least `count` elements of `size` bytes; what is new is zero. The room
 * doubles, but to exactly `count` where that is more. NULL: no memory, the old array stays. */
void *flw_largearray_grow(void *array, size_t count, size_t *room, size_t size);

/* The same for element number `count`, which is one more. */
static inline void *flw_largearray_reserve(void *array, size_t count, size_t *room, size_t size)
{
    return count < *room ? array : flw_largearray_grow(array, count + 1, room, size);
}

/* NULL with a room of 0 is allowed. */
void flw_largearray_free(void *array, size_t room, size_t size);

#endif
