/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace/intern.h"

#include <string.h>

#include "trace/trace/largearray.h"

#define HASH_BASIS UINT64_C(0xCBF29CE484222325)
#define HASH_PRIME UINT64_C(0x100000001B3)

uint64_t flw_intern_hash(const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    uint64_t hash = HASH_BASIS;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ byte[i]) * HASH_PRIME;
    }
    return hash;
}

/* Add an item of the bytes and then `zeros` zero bytes. */
static bool add(struct flw_intern *intern, const void *bytes, size_t count, size_t zeros,
                uint32_t *out)
{
    uint64_t hash = flw_intern_hash(bytes, count);
    while ((*out = flw_addressmap_find(&intern->places, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (flw_intern_size(intern, *out) == count + zeros &&
            memcmp(flw_intern_at(intern, *out), bytes, count) == 0) {
            return true;
        }
        hash++; /* two items with the same hash */
    }
    *out = (uint32_t)intern->count;
    if (intern->count >= FLW_ADDRESSMAP_ABSENT ||
        !FLW_LARGEARRAY_HOLDS(intern->bytes, intern->byte_count + count + 1, intern->byte_room) ||
        !FLW_LARGEARRAY_FITS(intern->begins, intern->count + 1, intern->begin_room) ||
        !flw_addressmap_put(&intern->places, hash, *out)) {
        return false;
    }
    memcpy(intern->bytes + intern->byte_count, bytes, count);
    intern->byte_count += count + zeros; /* new room is zero */
    intern->begins[++intern->count] = intern->byte_count;
    return true;
}

bool flw_intern_add(struct flw_intern *intern, const void *bytes, size_t count, uint32_t *out)
{
    return add(intern, bytes, count, 0, out);
}

bool flw_intern_add_text(struct flw_intern *intern, const void *bytes, size_t count, uint32_t *out)
{
    return add(intern, bytes, strnlen(bytes, count), 1, out);
}

void flw_intern_finish(struct flw_intern *intern)
{
    flw_largearray_free(intern->bytes, intern->byte_room, 1);
    flw_largearray_free(intern->begins, intern->begin_room, sizeof *intern->begins);
    flw_addressmap_finish(&intern->places);
    *intern = (struct flw_intern){0};
}
