/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: calloc and realloc that do not fail.
 * Does not: model anything.
 */
#include "simcuda/host.h"

#include <stdio.h>
#include <stdlib.h>

static void *need(void *pointer, size_t bytes)
{
    if (pointer == NULL) {
        fprintf(stderr, "simcuda: the host has no %zu bytes left; use a smaller device\n", bytes);
        abort();
    }
    return pointer;
}

void *flw_host_get(size_t bytes)
{
    return need(calloc(1, bytes == 0 ? 1 : bytes), bytes);
}

void *flw_host_resize(void *old, size_t bytes)
{
    return need(realloc(old, bytes), bytes);
}
