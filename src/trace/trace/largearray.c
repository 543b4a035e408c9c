/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: growth by malloc, then by mappings.
 * Does not: shrink.
 */
#include "trace/trace/largearray.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_ROOM 64

static bool is_mapped(size_t bytes)
{
    return bytes >= FLW_LARGEARRAY_BYTES;
}

/* Map zero-filled memory, with large pages if available: otherwise growth costs a page fault per 4 KiB. */
static void *map(size_t bytes)
{
    void *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (array == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(array, bytes, MADV_HUGEPAGE);
    return array;
}

static void *remap(void *array, size_t old_bytes, size_t bytes)
{
    void *moved = mremap(array, old_bytes, bytes, MREMAP_MAYMOVE);
    return moved != MAP_FAILED ? moved : NULL;
}

static void *resize(void *array, size_t old_bytes, size_t bytes)
{
    if (is_mapped(old_bytes)) {
        return remap(array, old_bytes, bytes);
    }
    if (!is_mapped(bytes)) {
        unsigned char *moved = realloc(array, bytes);
        if (moved != NULL) {
            memset(moved + old_bytes, 0, bytes - old_bytes);
        }
        return moved;
    }
    void *moved = map(bytes);
    if (moved != NULL && old_bytes > 0) {
        memcpy(moved, array, old_bytes);
        free(array);
    }
    return moved;
}

bool flw_largearray_grow(void *place, size_t count, size_t *room, size_t size)
{
    void *array;
    size_t next = *room == 0 ? FIRST_ROOM : *room * 2;
    next = next < count ? count : next;
    if (next > SIZE_MAX / 2 / size) {
        return false;
    }
    memcpy(&array, place, sizeof array);
    array = resize(array, *room * size, next * size);
    if (array != NULL) {
        memcpy(place, &array, sizeof array);
        *room = next;
    }
    return array != NULL;
}

void flw_largearray_free(void *array, size_t room, size_t size)
{
    if (is_mapped(room * size)) {
        munmap(array, room * size);
    } else {
        free(array);
    }
}
