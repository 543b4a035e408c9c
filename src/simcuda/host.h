/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulator's own host memory. Where the host has none left the simulator stops with a
 * sentence: it stands in for a machine, and a machine without memory has no error to return.
 * Does not: model anything.
 */
#ifndef FLW_SIMCUDA_HOST_H
#define FLW_SIMCUDA_HOST_H

#include <stddef.h>

/* Zero-filled. */
void *flw_host_get(size_t bytes);
/* As realloc; the new part is not filled. */
void *flw_host_resize(void *old, size_t bytes);

#endif
