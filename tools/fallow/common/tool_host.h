/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the host memory of the `fallow` command: jemalloc by its own names, so that nothing depends
 * on which library answers `malloc`; plain malloc where the build found no jemalloc. Does not:
 * touch device memory; the allocator library keeps its own tables.
 */
#ifndef FLW_TOOL_HOST_H
#define FLW_TOOL_HOST_H

#include <stddef.h>

/* Zero-filled; NULL when the system refuses or `count * bytes` does not fit a size_t. 0 gives a
 * byte. */
void *flw_host_alloc(size_t count, size_t bytes);

/* The same count and bytes as at the allocation. NULL is allowed. */
void flw_host_free(void *memory, size_t count, size_t bytes);

/* "jemalloc 5.3.0-..." or "malloc". */
const char *flw_host_name(void);

#endif
