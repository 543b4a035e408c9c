/* SPDX-License-Identifier: Apache-2.0 */
#include "base/meta.h"

#include <sys/mman.h>

#include "base/bits.h"

#define COMMIT_STEP (256 * FLW_KIB)

bool flw_meta_reserve(struct flw_meta *meta, uint64_t reserve_bytes)
{
    *meta = (struct flw_meta){0};
    reserve_bytes = flw_align_up(reserve_bytes, COMMIT_STEP);
    void *base =
        mmap(NULL, reserve_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    /* A forked child keeps a copy (caches are dropped there, not the tables); core dumps skip it.
     */
    (void)madvise(base, reserve_bytes, MADV_DONTDUMP);
    meta->base = base;
    meta->reserved_bytes = reserve_bytes;
    return true;
}

void *flw_meta_extend(struct flw_meta *meta, uint64_t bytes, uint64_t align)
{
    uint64_t begin = flw_align_up(meta->used_bytes, align);
    if (bytes > meta->reserved_bytes || begin > meta->reserved_bytes - bytes) {
        return NULL;
    }
    uint64_t end = begin + bytes;
    if (end > meta->usable_bytes) {
        uint64_t usable = flw_min(flw_align_up(end, COMMIT_STEP), meta->reserved_bytes);
        if (mprotect(meta->base + meta->usable_bytes, usable - meta->usable_bytes,
                     PROT_READ | PROT_WRITE) != 0) {
            return NULL;
        }
        meta->usable_bytes = usable;
    }
    meta->used_bytes = end;
    return meta->base + begin;
}

bool flw_meta_open(struct flw_meta *meta)
{
    if (mprotect(meta->base, meta->reserved_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    meta->usable_bytes = meta->reserved_bytes;
    meta->used_bytes = meta->reserved_bytes;
    return true;
}

void flw_meta_release(struct flw_meta *meta)
{
    if (meta->base != NULL) {
        munmap(meta->base, meta->reserved_bytes);
    }
    *meta = (struct flw_meta){0};
}
