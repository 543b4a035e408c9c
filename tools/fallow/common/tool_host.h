/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the host memory of the `fallow` command: jemalloc by its own names, so that nothing depends
 * on which library answers `malloc`; plain malloc where the build found no jemalloc. Does not:
 * touch device memory; the allocator library keeps its own tables.
 */
#ifndef FLW_TOOL_HOST_H
#define FLW_TOOL_HOST_H

#include <stddef.h>

/* Zero-filled. Never NULL: where the system refuses, or `count * bytes` does not fit a size_t, the
 * command says so and ends with exit code 1. Nothing is lost by that: files are written whole, at
 * the end (draft.h). 0 gives a byte. */
void *flw_host_alloc(size_t count, size_t bytes);

/* Room for `count` elements of `bytes`: the same memory where it has that, else at least twice as
 * much, with what was there, and zeroes behind it. `memory` may be NULL with a capacity of 0. */
void *flw_host_grow(void *memory, size_t *capacity, size_t count, size_t bytes);

#define FLW_HOST_LINE_BYTES 128 /* two lines of the cache: the adjacent one is prefetched */

/* The same on lines of its own. */
void *flw_host_lines(size_t count, size_t bytes);

/* Says that the host refused so much, and ends the command. */
_Noreturn void flw_host_refuse(size_t count, size_t bytes);

/* NULL is allowed. */
void flw_host_free(void *memory);

/* "jemalloc 5.3.0-..." or "malloc". */
const char *flw_host_name(void);

#endif
