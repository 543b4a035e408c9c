/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arenas of texts and pairs, and the maps that find them again.
 */
#include "trace/trace/intern.h"

#include <stdlib.h>
#include <string.h>

#include "record/array.h"

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

static bool reserve_text(struct flw_intern *intern, size_t bytes)
{
    bool has_memory = true;
    while (has_memory && intern->text_room < intern->text_bytes + bytes) {
        has_memory = FLW_ARRAY_FITS(intern->texts, intern->text_room, intern->text_room);
    }
    return has_memory;
}

bool flw_intern_add_text(struct flw_intern *intern, const void *bytes, size_t count, uint64_t *out)
{
    count = strnlen(bytes, count);
    uint64_t hash = flw_intern_hash(bytes, count);
    uint32_t known;
    while ((known = flw_addressmap_find(&intern->text_places, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (strncmp(intern->texts + known, bytes, count) == 0 &&
            intern->texts[known + count] == '\0') {
            *out = known;
            return true;
        }
        hash++; /* two texts with the same hash */
    }
    *out = intern->text_bytes;
    if (intern->text_bytes >= FLW_ADDRESSMAP_ABSENT || !reserve_text(intern, count + 1) ||
        !flw_addressmap_put(&intern->text_places, hash, (uint32_t)intern->text_bytes)) {
        return false;
    }
    memcpy(intern->texts + intern->text_bytes, bytes, count);
    intern->text_bytes += count;
    intern->texts[intern->text_bytes++] = '\0';
    return true;
}

bool flw_intern_add_pair(struct flw_intern *intern, struct flw_intern_pair pair, uint64_t *out)
{
    uint64_t hash = (pair.first * HASH_PRIME ^ pair.second) * HASH_PRIME;
    uint32_t known;
    while ((known = flw_addressmap_find(&intern->pair_places, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (intern->pairs[known].first == pair.first &&
            intern->pairs[known].second == pair.second) {
            *out = known;
            return true;
        }
        hash++;
    }
    *out = intern->pair_count;
    return intern->pair_count < FLW_ADDRESSMAP_ABSENT &&
           FLW_ARRAY_FITS(intern->pairs, intern->pair_count, intern->pair_room) &&
           flw_addressmap_put(&intern->pair_places, hash, (uint32_t)intern->pair_count) &&
           FLW_ARRAY_ADD(intern->pairs, intern->pair_count, intern->pair_room, pair);
}

void flw_intern_finish(struct flw_intern *intern)
{
    free(intern->texts);
    free(intern->pairs);
    flw_addressmap_finish(&intern->text_places);
    flw_addressmap_finish(&intern->pair_places);
    *intern = (struct flw_intern){0};
}
