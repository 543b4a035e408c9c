/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the growth of a plain array in host memory, and the copy of a string.
 */
#ifndef FLW_RECORD_ARRAY_H
#define FLW_RECORD_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Grow the array with the pointer at `place`, if necessary, to hold element number `count`. False:
 * no memory, the array is unchanged. */
static inline bool flw_array_fit(void *place, size_t count, size_t *room, size_t size)
{
    void *array;
    if (count < *room) {
        return true;
    }
    size_t next = *room == 0 ? 64 : *room * 2;
    memcpy(&array, place, sizeof array);
    array = next <= SIZE_MAX / size ? realloc(array, next * size) : NULL;
    if (array != NULL) {
        memcpy(place, &array, sizeof array);
        *room = next;
    }
    return array != NULL;
}

#define FLW_ARRAY_FITS(array, count, room) \
    flw_array_fit(&(array), (count), &(room), sizeof *(array))

/* Append a value to an array that fits or grows. False: no memory, the array is unchanged. */
#define FLW_ARRAY_ADD(array, count, room, value) \
    (FLW_ARRAY_FITS(array, count, room) && ((array)[(count)++] = (value), true))

/* Return a copy of a string, for free; NULL: no memory. (strdup uses the C library's malloc, which
 * may not match the `free` here.) */
static inline char *flw_array_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

#endif
