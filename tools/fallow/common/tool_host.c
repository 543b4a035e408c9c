/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tool_host.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

#if defined(FLW_USES_JEMALLOC)
#include <jemalloc/jemalloc.h>
#endif

void flw_host_refuse(size_t count, size_t bytes)
{
    fflush(stdout);
    fprintf(stderr,
            "fallow: out of host memory for %zu times %zu bytes; close other programs, or "
            "raise the limit (ulimit -v)\n",
            count, bytes);
    _Exit(1); /* other threads may still run */
}

static void *get(size_t count, size_t bytes, size_t align_bytes)
{
    size_t total = 0;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count, bytes, &total) && total <= SIZE_MAX / 2) {
        total = flw_align_up(flw_max(total, 1), align_bytes);
#if defined(FLW_USES_JEMALLOC)
        memory = mallocx(total, MALLOCX_ZERO | MALLOCX_ALIGN(align_bytes));
#else
        memory = align_bytes == 1 ? calloc(1, total) : aligned_alloc(align_bytes, total);
        if (memory != NULL && align_bytes != 1) {
            memset(memory, 0, total);
        }
#endif
    }
    if (memory == NULL) {
        flw_host_refuse(count, bytes);
    }
    return memory;
}

void *flw_host_alloc(size_t count, size_t bytes)
{
    return get(count, bytes, 1);
}

void *flw_host_lines(size_t count, size_t bytes)
{
    return get(count, bytes, FLW_HOST_LINE_BYTES);
}

void *flw_host_grow(void *memory, size_t *capacity, size_t count, size_t bytes)
{
    if (count <= *capacity) {
        return memory;
    }
    size_t larger = flw_max(2 * *capacity, flw_max(count, 64));
    void *fresh = flw_host_alloc(larger, bytes);
    if (*capacity != 0) {
        memcpy(fresh, memory, *capacity * bytes);
    }
    flw_host_free(memory);
    *capacity = larger;
    return fresh;
}

void flw_host_free(void *memory)
{
#if defined(FLW_USES_JEMALLOC)
    if (memory != NULL) {
        dallocx(memory, 0);
    }
#else
    free(memory);
#endif
}

const char *flw_host_name(void)
{
#if defined(FLW_USES_JEMALLOC)
    return "jemalloc " JEMALLOC_VERSION;
#else
    return "malloc";
#endif
}
