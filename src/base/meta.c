/* SPDX-License-Identifier: Apache-2.0 */
#include "base/meta.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bits.h"

#define COMMIT_STEP (256 * FLW_KIB)

/* ---- address space */

/* Return the bytes that the kernel counts against RLIMIT_AS; 0 if unknown. */
static uint64_t mapped_bytes(void)
{
    char text[32] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0) {
        text[0] = '\0';
    }
    if (file >= 0) {
        close(file);
    }
    return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t flw_meta_allowance(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return UINT64_MAX;
    }
    uint64_t mapped = mapped_bytes();
    return limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
}

static void *map(uintptr_t address, uint64_t bytes, int flags)
{
    return mmap((void *)address, bytes, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static void hold(struct flw_meta *meta, void *base, uint64_t bytes)
{
    /* A forked child keeps a copy (caches are dropped, tables are not); core dumps
     * skip the range. */
    (void)madvise(base, bytes, MADV_DONTDUMP);
    *meta = (struct flw_meta){.base = base, .reserved_bytes = bytes};
}

uint64_t flw_meta_rounded_bytes(uint64_t reserve_bytes)
{
    return flw_align_up(reserve_bytes, COMMIT_STEP);
}

bool flw_meta_reserve(struct flw_meta *meta, uint64_t reserve_bytes)
{
    *meta = (struct flw_meta){0};
    reserve_bytes = flw_meta_rounded_bytes(reserve_bytes);
    void *base = map(0, reserve_bytes, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    hold(meta, base, reserve_bytes);
    return true;
}

/* Reserve the second range, so that no more than the two is ever reserved: wherever the kernel
 * chooses, or about `below` under that, with the first at the distance if that range is free. */
static bool reserve_apart(struct flw_meta *first, uint64_t first_bytes, struct flw_meta *second,
                          uint64_t second_bytes, uint64_t distance, uint64_t below)
{
    unsigned char *upper = map(0, second_bytes, 0);
    if (upper != MAP_FAILED && below != 0 && (uintptr_t)upper > below) {
        uintptr_t hint = (uintptr_t)upper - below;
        munmap(upper, second_bytes);
        upper = map(hint, second_bytes, 0);
    }
    if (upper == MAP_FAILED) {
        return false;
    }
    uintptr_t place = (uintptr_t)upper - distance;
    void *lower =
        (uintptr_t)upper > distance ? map(place, first_bytes, MAP_FIXED_NOREPLACE) : MAP_FAILED;
    if (lower == (void *)place) {
        hold(first, lower, first_bytes);
        hold(second, upper, second_bytes);
        return true;
    }
    if (lower != MAP_FAILED) {
        munmap(lower, first_bytes); /* an old kernel treats the address as a hint */
    }
    munmap(upper, second_bytes);
    return false;
}

#define PLACES_TRIED 16 /* each twice as far away */

bool flw_meta_reserve_pair(struct flw_meta *first, uint64_t first_bytes, struct flw_meta *second,
                           uint64_t second_bytes, uint64_t distance)
{
    first_bytes = flw_meta_rounded_bytes(first_bytes);
    second_bytes = flw_meta_rounded_bytes(second_bytes);
    unsigned char *whole = map(0, distance + second_bytes, 0);
    if (whole != MAP_FAILED) {
        if (distance > first_bytes) {
            munmap(whole + first_bytes, distance - first_bytes);
        }
        hold(first, whole, flw_min(first_bytes, distance));
        hold(second, whole + distance, second_bytes);
        return true;
    }
    for (unsigned i = 0; i < PLACES_TRIED; i++) { /* a limit of the address space */
        uint64_t below = i == 0 ? 0 : distance << (i - 1);
        if (reserve_apart(first, first_bytes, second, second_bytes, distance, below)) {
            return true;
        }
    }
    *first = *second = (struct flw_meta){0};
    return false;
}

/* ---- memory */

static void *refuse(struct flw_meta *meta, bool is_full)
{
    __atomic_store_n(&meta->is_full, is_full, __ATOMIC_RELAXED);
    __atomic_store_n(&meta->refusals, meta->refusals + 1, __ATOMIC_RELAXED);
    return NULL;
}

void *flw_meta_extend(struct flw_meta *meta, uint64_t bytes, uint64_t align)
{
    uint64_t begin = flw_align_up(meta->used_bytes, align);
    if (bytes > meta->reserved_bytes || begin > meta->reserved_bytes - bytes) {
        return refuse(meta, true);
    }
    uint64_t end = begin + bytes;
    if (end > meta->usable_bytes) {
        uint64_t usable = flw_min(flw_align_up(end, COMMIT_STEP), meta->reserved_bytes);
        if (mprotect(meta->base + meta->usable_bytes, usable - meta->usable_bytes,
                     PROT_READ | PROT_WRITE) != 0) {
            return refuse(meta, false);
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
