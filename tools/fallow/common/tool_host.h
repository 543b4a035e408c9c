/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the host memory of the `fallow` command: jemalloc by its own names, whichever library defines `malloc`; malloc
 * if the build found no jemalloc.
 */
#ifndef FLW_TOOL_HOST_H
#define FLW_TOOL_HOST_H

#include <stddef.h>

/* Return zero-filled memory, at least a byte; never NULL: if memory runs out, the command prints an error and ends with
 * exit code 1. No file is damaged: files are written whole, at the end (draft.h). */
void *flw_host_alloc(size_t count, size_t bytes);

/* Return memory for at least `count` elements of `bytes`: the same memory, or a copy of at least twice the capacity,
 * zero-filled after the old content. `memory` may be NULL with a capacity of 0. */
void *flw_host_grow(void *memory, size_t *capacity, size_t count, size_t bytes);

/* Grow an array in place, to at least `count` elements. */
#define FLW_HOST_GROW(array, capacity, count) \
    ((array) = flw_host_grow((array), &(capacity), (count), sizeof *(array)))

/* Append a value. */
#define FLW_HOST_ADD(array, count, capacity, ...) \
    (FLW_HOST_GROW(array, capacity, (size_t)(count) + 1), (array)[(count)++] = (__VA_ARGS__))

#define FLW_HOST_LINE_BYTES 128 /* two cache lines, because the adjacent line is prefetched */

/* The same as flw_host_alloc on cache lines of its own. */
void *flw_host_lines(size_t count, size_t bytes);

/* Print that the host has no memory for so much, and end the command. */
_Noreturn void flw_host_refuse(size_t count, size_t bytes);

/* NULL is allowed. */
void flw_host_free(void *memory);

/* Free a local array at the end of its block: FLW_LOCAL int *list = flw_host_alloc(...); */
#define FLW_LOCAL __attribute__((cleanup(flw_host_free_local)))
static inline void flw_host_free_local(void *place)
{
    flw_host_free(*(void **)place);
}

/* "jemalloc 5.3.0-..." or "malloc". */
const char *flw_host_name(void);

#endif
