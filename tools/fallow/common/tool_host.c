/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tool_host.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(FLW_USES_JEMALLOC)
#include <jemalloc/jemalloc.h>
#endif

/* 0: the product does not fit. */
static size_t total_bytes(size_t count, size_t bytes)
{
    size_t total = 0;
    if (__builtin_mul_overflow(count, bytes, &total) || total > SIZE_MAX / 2) {
        return 0;
    }
    return total == 0 ? 1 : total;
}

void *flw_host_alloc(size_t count, size_t bytes)
{
    size_t total = total_bytes(count, bytes);
    if (total == 0) {
        return NULL;
    }
#if defined(FLW_USES_JEMALLOC)
    return mallocx(total, MALLOCX_ZERO);
#else
    return calloc(1, total);
#endif
}

void flw_host_free(void *memory, size_t count, size_t bytes)
{
    if (memory == NULL) {
        return;
    }
#if defined(FLW_USES_JEMALLOC)
    sdallocx(memory, total_bytes(count, bytes), 0);
#else
    (void)count;
    (void)bytes;
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
