/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: probing, growth and removal of the address map.
 * Does not: leave tombstones: removal closes the gap, so a long replay never slows down.
 */
#include "record/addressmap.h"

#include <stdlib.h>

#define FIRST_SLOTS 256
#define FIRST_SHIFT (64 - 8)

/* Multiples of the golden ratio are spread evenly, for any step between keys; the first line is
 * for keys with equal low bits. */
static size_t home_of(const struct flw_addressmap *map, uint64_t key)
{
    key ^= key >> 32;
    return (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> map->shift);
}

/* Return the slot of the key, or the empty slot for it. */
static size_t probe(const struct flw_addressmap *map, uint64_t key)
{
    size_t at = home_of(map, key);
    while (map->slots[at].value != FLW_ADDRESSMAP_ABSENT && map->slots[at].key != key) {
        at = (at + 1) & (map->slot_count - 1);
    }
    return at;
}

static bool grow(struct flw_addressmap *map)
{
    struct flw_addressmap next = {.slot_count = map->slot_count * 2, .shift = map->shift - 1};
    if (next.slot_count == 0) {
        next.slot_count = FIRST_SLOTS;
        next.shift = FIRST_SHIFT;
    }
    next.slots = malloc(next.slot_count * sizeof(*next.slots));
    if (next.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < next.slot_count; i++) {
        next.slots[i] = (struct flw_addressmap_slot){0, FLW_ADDRESSMAP_ABSENT};
    }
    for (size_t i = 0; i < map->slot_count; i++) {
        if (map->slots[i].value != FLW_ADDRESSMAP_ABSENT) {
            next.slots[probe(&next, map->slots[i].key)] = map->slots[i];
        }
    }
    next.used_count = map->used_count;
    free(map->slots);
    *map = next;
    return true;
}

void flw_addressmap_finish(struct flw_addressmap *map)
{
    free(map->slots);
    *map = (struct flw_addressmap){0};
}

uint32_t flw_addressmap_find(const struct flw_addressmap *map, uint64_t key)
{
    if (map->slot_count == 0) {
        return FLW_ADDRESSMAP_ABSENT;
    }
    return map->slots[probe(map, key)].value;
}

bool flw_addressmap_exchange(struct flw_addressmap *map, uint64_t key, uint32_t value,
                             uint32_t *out_old)
{
    if (map->used_count >= map->slot_count / 2 && !grow(map)) {
        return false;
    }
    struct flw_addressmap_slot *slot = &map->slots[probe(map, key)];
    *out_old = slot->value;
    map->used_count += slot->value == FLW_ADDRESSMAP_ABSENT;
    *slot = (struct flw_addressmap_slot){key, value};
    return true;
}

bool flw_addressmap_put(struct flw_addressmap *map, uint64_t key, uint32_t value)
{
    uint32_t old;
    return flw_addressmap_exchange(map, key, value, &old);
}

uint32_t flw_addressmap_remove(struct flw_addressmap *map, uint64_t key)
{
    if (map->slot_count == 0) {
        return FLW_ADDRESSMAP_ABSENT;
    }
    size_t mask = map->slot_count - 1;
    size_t hole = probe(map, key);
    uint32_t value = map->slots[hole].value;
    if (value == FLW_ADDRESSMAP_ABSENT) {
        return value;
    }
    for (size_t at = (hole + 1) & mask; map->slots[at].value != FLW_ADDRESSMAP_ABSENT;
         at = (at + 1) & mask) {
        size_t home = home_of(map, map->slots[at].key);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].value = FLW_ADDRESSMAP_ABSENT;
    map->used_count--;
    return value;
}
