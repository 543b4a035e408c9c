/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the growth of a plain array in host memory.
 */
#ifndef FLW_RECORD_ARRAY_H
#define FLW_RECORD_ARRAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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

#endif
