/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the source of whole segments: cuMemAlloc and cuMemFree. For devices without virtual memory
 * management, and for memory that must be what cudaMalloc would have given.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/source.h"

static CUresult slab_acquire(struct flw_source *source, uint64_t bytes, uint64_t *out_address)
{
    CUdeviceptr address = 0;
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
    CUresult result = source->driver->cuMemAlloc_v2(&address, bytes);
    *out_address = address;
    return result;
}

static CUresult slab_release_segment(struct flw_source *source, uint64_t address)
{
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
    return source->driver->cuMemFree_v2(address);
}

const struct flw_source_ops flw_source_slab = {
    .name = "cuMemAlloc segments",
    .remaps = false,
    .acquire = slab_acquire,
    .release_segment = slab_release_segment,
};
