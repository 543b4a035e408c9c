/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the growth of a plain array in host memory, and the copy of a string.
 */
#ifndef FLW_RECORD_ARRAY_H
#define FLW_RECORD_ARRAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* `array` with room for at least element number `count`. NULL: no memory, the old array stays. */
static inline void *flw_array_reserve(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room) {
        return array;
    }
    size_t next = *room == 0 ? 64 : *room * 2;
    void *moved = next <= SIZE_MAX / size ? realloc(array, next * size) : NULL;
    if (moved != NULL) {
        *room = next;
    }
    return moved;
}

/* A copy of a string, for free. NULL: no memory. (strdup asks the C library's malloc, which need not
 * be the one that `free` here belongs to.) */
static inline char *flw_array_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

#endif
