/* SPDX-License-Identifier: Apache-2.0 */
#include "arena/layout.h"

#include <stdlib.h>
#include <string.h>

#include "arena/plan.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/mutant.h"

#define REGIONS_MOST    65535
#define CHECKED_REGIONS 4096 /* above, the quadratic check would be the longest part */
#define PHASE_MOST      65535
#define ALIGN_MOST      ((size_t)2 << 20)
#define ALIGN_USUAL     256
#define BYTES_MOST      ((uint64_t)1 << 62)

static _Atomic uint64_t last_id; /* numbers layouts; relaxed */

static bool is_persistent(const fallow_region *region)
{
    return (region->flags & FALLOW_REGION_PERSISTENT) != 0;
}

static bool is_region_legal(const fallow_region *region)
{
    size_t align = region->align_bytes, element = region->element_bytes;
    return region->name != NULL && region->name[0] != '\0' &&
           strlen(region->name) <= FLW_ARENA_NAME_MOST &&
           (region->size_bytes > 0 || !is_persistent(region)) && region->size_bytes <= BYTES_MOST &&
           (align & (align - 1)) == 0 && align <= ALIGN_MOST &&
           (unsigned)region->init <= FALLOW_INIT_NEUTRAL_TAIL &&
           (region->flags & ~(uint32_t)FALLOW_REGION_PERSISTENT) == 0 && region->reserved_0 == 0 &&
           (is_persistent(region) ||
            (region->first_phase <= region->last_phase && region->last_phase <= PHASE_MOST)) &&
           (!is_persistent(region) || region->size_bytes % (element == 0 ? 4 : element) == 0) &&
           (element == 0 || element == 1 || element == 2 || element == 4 || element == 8);
}

static fallow_status check_regions(const fallow_region *regions, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_region_legal(&regions[i]) || sum > BYTES_MOST - regions[i].size_bytes) {
            return FALLOW_INVALID_ARGUMENT;
        }
        sum += regions[i].size_bytes;
    }
    return FALLOW_OK;
}

/* ---- names */

/* Return the slot of the region with this name, or the empty slot for a new region of this name. */
static uint16_t *find_slot(const fallow_layout *layout, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *byte = name; *byte != '\0'; byte++) {
        hash = (hash ^ (unsigned char)*byte) * UINT64_C(0x100000001b3);
    }
    for (size_t at = hash ^ hash >> 32;; at++) {
        uint16_t *slot = &layout->slots[at & layout->slot_mask];
        if (*slot == FLW_LAYOUT_NO_REGION ||
            strcmp(layout->regions[*slot].region.name, name) == 0) {
            return slot;
        }
    }
}

/* Fill the table of names. Returns false if two regions have the same name. */
static bool index_names(fallow_layout *layout)
{
    memset(layout->slots, 0xff, (layout->slot_mask + 1) * sizeof *layout->slots);
    for (size_t i = 0; i < layout->count; i++) {
        uint16_t *slot = find_slot(layout, layout->regions[i].region.name);
        if (*slot != FLW_LAYOUT_NO_REGION) {
            return false;
        }
        *slot = (uint16_t)i;
    }
    return true;
}

/* Create a layout with copied regions, not placed yet. */
static fallow_layout *copy_regions(const fallow_region *regions, size_t count)
{
    size_t name_bytes = 0, slot_count = (size_t)4 << flw_log2_floor(count);
    for (size_t i = 0; i < count; i++) {
        name_bytes += strlen(regions[i].name) + 1;
    }
    fallow_layout *layout = calloc(1, sizeof *layout + count * sizeof layout->regions[0]);
    uint16_t *slots = malloc(slot_count * sizeof *slots + name_bytes);
    if (layout == NULL || slots == NULL) {
        free(layout);
        free(slots);
        return NULL;
    }
    char *names = (char *)(slots + slot_count);
    layout->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    layout->count = count;
    atomic_init(&layout->references, 1);
    memcpy(layout->name, "unnamed", sizeof "unnamed");
    layout->slots = slots;
    layout->slot_mask = slot_count - 1;
    for (size_t i = 0; i < count; i++) {
        fallow_region *region = &layout->regions[i].region;
        size_t bytes = strlen(regions[i].name) + 1;
        *region = regions[i];
        memcpy(names, regions[i].name, bytes);
        region->name = names;
        names += bytes;
        region->align_bytes = region->align_bytes == 0 ? ALIGN_USUAL : region->align_bytes;
        region->element_bytes = region->element_bytes == 0 ? 4 : region->element_bytes;
    }
    return layout;
}

/* Persistent regions have a block each. */
static void place_persistent(fallow_layout *layout)
{
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if (is_persistent(region)) {
            layout->persistent_bytes =
                flw_align_up(layout->persistent_bytes, region->align_bytes) + region->size_bytes;
            layout->persistent_count++;
        }
    }
}

/* One behind the other, a zone behind each. */
static void place_guarded(fallow_layout *layout)
{
    for (size_t i = 0; i < layout->count; i++) {
        struct flw_placed_region *placed = &layout->regions[i];
        if (!is_persistent(&placed->region)) {
            placed->guarded_offset =
                flw_align_up(layout->guarded_bytes, placed->region.align_bytes);
            layout->guarded_bytes =
                placed->guarded_offset + placed->region.size_bytes + FLW_ARENA_ZONE_BYTES;
        }
    }
}

static bool place_scratch(fallow_layout *layout, struct flw_plan_item *items, uint64_t effort_ns)
{
    size_t count = 0, least_bytes = 0;
    uint64_t bytes = 0;
    layout->align_bytes = 1;
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if (is_persistent(region)) {
            continue;
        }
        layout->align_bytes = flw_max(layout->align_bytes, region->align_bytes);
        if (region->size_bytes == 0) {
            least_bytes = 1;
        } else {
            items[count++] = (struct flw_plan_item){.bytes = region->size_bytes,
                                                    .align_bytes = region->align_bytes,
                                                    .first_phase = region->first_phase,
                                                    .last_phase = region->last_phase};
        }
    }
    layout->lower_bound = flw_plan_lower_bound(items, count);
    if (!flw_plan_place(items, count, effort_ns, &bytes)) {
        return false;
    }
    layout->bytes = flw_max(bytes, least_bytes);
    for (size_t i = 0, k = 0; i < layout->count; i++) {
        struct flw_placed_region *placed = &layout->regions[i];
        if (!is_persistent(&placed->region) && placed->region.size_bytes > 0) {
            placed->offset = items[k++].offset;
            if (FLW_MUTANT(ARENA_REGIONS_OVERLAP) && placed->offset > 0) {
                placed->offset -= placed->region.align_bytes;
            }
        }
    }
    return true;
}

fallow_status fallow_layout_create_within(const fallow_region *regions, size_t count,
                                          uint64_t effort_ns, fallow_layout **out_layout)
{
    if (out_layout == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_layout = NULL;
    if (count == 0 || count > REGIONS_MOST || regions == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = check_regions(regions, count);
    if (status != FALLOW_OK) {
        return status;
    }
    fallow_layout *layout = copy_regions(regions, count);
    struct flw_plan_item *items = malloc(count * sizeof *items);
    status = FALLOW_OUT_OF_HOST_MEMORY;
    if (layout == NULL || items == NULL) {
        goto fail;
    }
    if (!index_names(layout)) {
        status = FALLOW_INVALID_ARGUMENT;
        goto fail;
    }
    place_persistent(layout);
    place_guarded(layout);
    if (!place_scratch(layout, items, effort_ns)) {
        goto fail;
    }
    free(items);
    FLW_ASSERT_VALID(count > CHECKED_REGIONS || flw_layout_is_valid(layout));
    *out_layout = layout;
    return FALLOW_OK;
fail:
    free(items);
    fallow_layout_destroy(layout);
    return status;
}

fallow_status fallow_layout_create(const fallow_region *regions, size_t count,
                                   fallow_layout **out_layout)
{
    return fallow_layout_create_within(regions, count, 0, out_layout);
}

void flw_layout_free(fallow_layout *layout)
{
    free(layout->slots);
    free(layout);
}

void fallow_layout_destroy(fallow_layout *layout)
{
    flw_layout_drop(layout);
}

fallow_status fallow_layout_set_name(fallow_layout *layout, const char *name)
{
    if (layout == NULL || name == NULL || name[0] == '\0' || strlen(name) > FLW_ARENA_NAME_MOST) {
        return FALLOW_INVALID_ARGUMENT;
    }
    memcpy(layout->name, name, strlen(name) + 1);
    return FALLOW_OK;
}

const char *fallow_layout_name(const fallow_layout *layout)
{
    return layout == NULL ? NULL : layout->name;
}

size_t fallow_layout_bytes(const fallow_layout *layout)
{
    return layout == NULL ? 0 : layout->bytes;
}

size_t fallow_layout_lower_bound(const fallow_layout *layout)
{
    return layout == NULL ? 0 : layout->lower_bound;
}

size_t fallow_layout_persistent_bytes(const fallow_layout *layout)
{
    return layout == NULL ? 0 : layout->persistent_bytes;
}

size_t fallow_layout_region_count(const fallow_layout *layout)
{
    return layout == NULL ? 0 : layout->count;
}

fallow_status fallow_layout_region(const fallow_layout *layout, size_t index,
                                   fallow_region *out_region, size_t *out_offset)
{
    if (layout == NULL || index >= layout->count) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (out_region != NULL) {
        *out_region = layout->regions[index].region;
    }
    if (out_offset != NULL) {
        *out_offset = layout->regions[index].offset;
    }
    return FALLOW_OK;
}

size_t fallow_layout_find(const fallow_layout *layout, const char *name)
{
    uint16_t index =
        layout == NULL || name == NULL ? FLW_LAYOUT_NO_REGION : *find_slot(layout, name);
    return index == FLW_LAYOUT_NO_REGION ? SIZE_MAX : index;
}

static bool overlap(const struct flw_placed_region *a, const struct flw_placed_region *b)
{
    bool meet = a->region.first_phase <= b->region.last_phase &&
                b->region.first_phase <= a->region.last_phase;
    return (meet && a->offset < b->offset + b->region.size_bytes &&
            b->offset < a->offset + a->region.size_bytes) ||
           (a->guarded_offset < b->guarded_offset + b->region.size_bytes + FLW_ARENA_ZONE_BYTES &&
            b->guarded_offset < a->guarded_offset + a->region.size_bytes + FLW_ARENA_ZONE_BYTES);
}

bool flw_layout_is_valid(const fallow_layout *layout)
{
    size_t end = 0, guarded_end = 0, align = 1;
    for (size_t i = 0; i < layout->count; i++) {
        const struct flw_placed_region *a = &layout->regions[i];
        const fallow_region *region = &a->region;
        if (a->offset % region->align_bytes != 0 || a->guarded_offset % region->align_bytes != 0 ||
            fallow_layout_find(layout, region->name) != i) {
            return false;
        }
        if (is_persistent(region)) {
            continue;
        }
        align = flw_max(align, region->align_bytes);
        end = flw_max(end, a->offset + flw_max(region->size_bytes, 1));
        guarded_end =
            flw_max(guarded_end, a->guarded_offset + region->size_bytes + FLW_ARENA_ZONE_BYTES);
        for (size_t j = 0; j < i; j++) {
            const struct flw_placed_region *b = &layout->regions[j];
            if (!is_persistent(&b->region) && overlap(a, b)) {
                return false;
            }
        }
    }
    return end == layout->bytes && guarded_end == layout->guarded_bytes &&
           align == layout->align_bytes && layout->lower_bound <= layout->bytes;
}
