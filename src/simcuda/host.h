/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulator's own host memory. If the host has none left the simulator stops with a
 * message: it represents a machine, and a machine without memory has no error to return.
 * Does not: model anything. */
#ifndef FLW_SIMCUDA_HOST_H
#define FLW_SIMCUDA_HOST_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static inline void *flw_host_need(void *pointer, size_t bytes)
{
    if (pointer == NULL) {
        fprintf(stderr, "simcuda: the host has no %zu bytes left; use a smaller device\n", bytes);
        abort();
    }
    return pointer;
}

/* Zero-filled. */
static inline void *flw_host_get(size_t bytes)
{
    return flw_host_need(calloc(1, bytes == 0 ? 1 : bytes), bytes);
}

/* As realloc; the new part is not filled. */
static inline void *flw_host_resize(void *old, size_t bytes)
{
    return flw_host_need(realloc(old, bytes), bytes);
}

/* Make room for element number `count` of an array. */
#define FLW_HOST_FIT(array, count, capacity)                                  \
    do {                                                                      \
        if ((count) == (capacity)) {                                          \
            (capacity) = (capacity) == 0 ? 8 : (capacity)*2;                  \
            (array) = flw_host_resize((array), (capacity) * sizeof *(array)); \
        }                                                                     \
    } while (0)

#endif
